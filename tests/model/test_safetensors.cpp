// SPDX-License-Identifier: Apache-2.0
// Safetensors: the golden files byte by byte, conversions, shards, and files that are damaged.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "model/families.h"
#include "model/safetensors.h"
#include "model/safetensors_write.h"
#include "tests/model/test_folder.h"

using namespace bdlm;
using Catch::Contains;
using nlohmann::json;
using test::error_of;

namespace {

const std::string golden = std::string(BDLM_TEST_DATA) + "/golden/";

/// A file's bytes from a header's text and the data behind it.
std::string file_of(const std::string& header, const std::string& data) {
  const std::uint64_t length = header.size();
  std::string out(sizeof length, '\0');
  std::memcpy(out.data(), &length, sizeof length);
  return out + header + data;
}

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

/// What opening a folder with this model.safetensors says.
std::string refusal(const std::string& bytes) {
  const test::Folder folder;
  folder.write("model.safetensors", bytes);
  return error_of([&] { SafetensorsFolder{folder.path()}; });
}

std::string refusal_of_header(const std::string& header, std::size_t data_bytes) {
  return refusal(file_of(header, std::string(data_bytes, '\0')));
}

std::vector<double> read_all(const SafetensorsFolder& files, const std::string& name,
                             std::int64_t count) {
  std::vector<double> out(static_cast<std::size_t>(count));
  files.read(name, 0, count, out.data());
  return out;
}

/// The golden tensors, to be written again with a change.
std::vector<SafetensorsTensor> tensors_of(const SafetensorsFolder& files) {
  std::vector<SafetensorsTensor> out;
  for (const auto& [name, entry] : files.tensors()) {
    out.push_back({name, entry.shape, DType::f64,
                   [&files, key = name](std::int64_t begin, std::int64_t count, double* values) {
                     files.read(key, begin, count, values);
                   }});
  }
  return out;
}

/// What check_tensors says of the golden llama after a change of its tensors or its config.
template <class Change>
std::string complaint(const std::string& name, Change change) {
  const SafetensorsFolder files(golden + name);
  ModelConfig config = read_hf_config(golden + name);
  auto tensors = tensors_of(files);
  change(tensors, config);
  const test::Folder folder;
  write_safetensors(folder.file("model.safetensors"), tensors);
  const SafetensorsFolder changed(folder.path());
  return error_of([&] { check_tensors(changed, config); });
}

}  // namespace

TEST_CASE("every golden folder fits its model and lands in the right place", "[safetensors]") {
  int folders = 0;
  for (const auto& item : std::filesystem::directory_iterator(golden)) {
    INFO(item.path().string());
    ++folders;
    const std::string folder = item.path().string();
    const ModelConfig config = read_hf_config(folder);
    const ParameterLayout layout = layout_of(config);
    const SafetensorsFolder files(folder);
    REQUIRE_NOTHROW(check_tensors(files, config));
    std::vector<double> flat(static_cast<std::size_t>(layout.size), -9.0);
    read_parameters(files, config, layout, 0, layout.size, flat.data());

    // The header read once more, without the code under test.
    const std::string bytes = test::read_bytes(folder + "/model.safetensors");
    std::uint64_t length = 0;
    std::memcpy(&length, bytes.data(), sizeof length);
    const json header = json::parse(bytes.substr(8, length));
    std::vector<double> expected(flat.size(), 0.0);
    for (const DiskTensor& disk : disk_tensors(config, layout)) {
      const auto begin = header.at(disk.name).at("data_offsets").at(0).get<std::size_t>();
      std::int64_t elements = 0;  // of parts that stand side by side: [q; k; v]
      for (const std::string& part : disk.parts) elements += layout.at(part).size();
      std::memcpy(expected.data() + layout.at(disk.parts.front()).offset,
                  bytes.data() + 8 + length + begin,
                  static_cast<std::size_t>(elements) * sizeof(double));
    }
    CHECK((flat == expected));

    // Any part gives the same.
    for (const std::int64_t step : {std::int64_t{777}, layout.size / 3}) {
      std::vector<double> parts(flat.size(), -9.0);
      for (std::int64_t begin = 0; begin < layout.size; begin += step) {
        const std::int64_t count = std::min(step, layout.size - begin);
        read_parameters(files, config, layout, begin, count, parts.data() + begin);
      }
      CHECK((parts == expected));
    }
  }
  CHECK(folders == 12);
}

TEST_CASE("a rank reads its part of every tensor", "[safetensors]") {
  for (const auto& item : std::filesystem::directory_iterator(golden)) {
    INFO(item.path().string());
    const ModelConfig config = read_hf_config(item.path().string());
    const SafetensorsFolder files(item.path().string());
    const ParameterLayout whole = layout_of(config);
    std::vector<double> all(static_cast<std::size_t>(whole.size));
    read_parameters(files, config, whole, 0, whole.size, all.data());
    for (const int tensor : {2, 3, 4}) {
      if (config.num_attention_heads % tensor != 0) continue;
      ModelShard shard = whole_model(config);
      shard.tensor = tensor;  // above the number of key/value heads: some ranks share one
      shard.expert = 3;
      shard.pipelined = true;
      shard.first = false;
      shard.chunks = {{1, config.num_hidden_layers}};
      for (int rank = 0; rank < tensor; ++rank) {
        shard.tensor_rank = rank;
        shard.expert_rank = rank % 3;
        const ParameterLayout layout = layout_of(config, shard);
        std::vector<double> expected(static_cast<std::size_t>(layout.size), 0.0);
        for (const Parameter& part : layout.tensors) {
          for (std::int64_t i = 0; i < part.size(); ++i) {
            const std::int64_t row = part.first_row + i / part.cols;
            const std::int64_t col = part.first_col + i % part.cols;
            expected[static_cast<std::size_t>(part.offset + i)] = all[static_cast<std::size_t>(
                whole.at(part.name).offset + row * part.whole_cols + col)];
          }
        }
        std::vector<double> local(expected.size(), -9.0), parts = local;
        read_parameters(files, config, layout, 0, layout.size, local.data());
        CHECK((local == expected));
        for (std::int64_t begin = 0; begin < layout.size; begin += 333) {
          const std::int64_t count = std::min<std::int64_t>(333, layout.size - begin);
          read_parameters(files, config, layout, begin, count, parts.data() + begin);
        }
        CHECK((parts == expected));
      }
    }
  }
}

TEST_CASE("F32, BF16 and F16 become doubles exactly", "[safetensors]") {
  const std::vector<float> single{1.5f, -0.0f, 1e-45f, 3.4e38f};
  const std::vector<std::uint16_t> brain{0x3fc0, 0x8000, 0x0001, 0xff80};
  // One, the largest, the least normal, the largest and the least subnormal, their negatives.
  const std::vector<std::uint16_t> half{0x3c00, 0x7bff, 0x0400, 0x03ff, 0x0001, 0x0000,
                                        0xbc00, 0x8001, 0x8000, 0x7c00, 0xfc00, 0x7e00};
  const test::Folder folder;
  // An odd header puts every tensor at an odd address.
  const std::string header = R"({"s":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},)"
                             R"("b":{"dtype":"BF16","shape":[4],"data_offsets":[16,24]},)"
                             R"("h":{"dtype":"F16","shape":[3,4],"data_offsets":[24,48]},)"
                             R"("none":{"dtype":"F16","shape":[3,0],"data_offsets":[48,48]},)"
                             R"("one":{"dtype":"F64","shape":[],"data_offsets":[48,56]}})";
  folder.write("model.safetensors", file_of(header + (header.size() % 2 ? "" : " "),
                                            bytes_of(single) + bytes_of(brain) + bytes_of(half) +
                                                bytes_of(std::vector<double>{0.1})));
  const SafetensorsFolder files(folder.path());
  CHECK(read_all(files, "s", 4) == std::vector<double>{1.5, -0.0, 0x1p-149, 3.4e38f});
  CHECK(std::signbit(read_all(files, "s", 4)[1]));
  constexpr double infinity = std::numeric_limits<double>::infinity();
  CHECK(read_all(files, "b", 4) == std::vector<double>{1.5, -0.0, 0x1p-133, -infinity});
  const auto h = read_all(files, "h", 12);
  CHECK(std::vector<double>(h.begin(), h.end() - 1) ==
        std::vector<double>{1, 65504, 0x1p-14, 1023 * 0x1p-24, 0x1p-24, 0, -1, -0x1p-24, -0.0,
                            infinity, -infinity});
  CHECK(std::signbit(h[8]));
  CHECK(std::isnan(h[11]));
  CHECK(read_all(files, "none", 0).empty());
  CHECK(read_all(files, "one", 1) == std::vector<double>{0.1});

  double part[2] = {};
  files.read("s", 2, 2, part);
  CHECK(part[1] == 3.4e38f);
  CHECK_THAT(error_of([&] { files.read("s", 3, 2, part); }), Contains("'s'"));
  CHECK_THAT(error_of([&] { files.at("t"); }), Contains("'t'") && Contains(folder.path()));
}

TEST_CASE("damaged files are named and refused", "[safetensors]") {
  const std::string whole = test::read_bytes(golden + "llama_one_document/model.safetensors");
  CHECK(refusal(whole).empty());
  CHECK_THAT(refusal(""), Contains("model.safetensors"));
  CHECK_THAT(refusal(whole.substr(0, 5)), Contains("truncated"));
  CHECK_THAT(refusal(whole.substr(0, 200)), Contains("truncated"));
  CHECK_THAT(refusal(whole.substr(0, whole.size() - 1)), Contains("truncated"));
  CHECK_THAT(refusal(whole + "x"), Contains("1 bytes follow"));
  std::string longer = whole;
  longer[7] = '\x7f';  // a header longer than any file
  CHECK_THAT(refusal(longer), Contains("claims a header"));
  std::string shorter = whole;
  shorter[0] = static_cast<char>(shorter[0] - 8);  // the header ends early
  CHECK_THAT(refusal(shorter), Contains("model.safetensors"));
  CHECK_THAT(refusal("PK\x03\x04 this is some other file, long enough to have a header"),
             Contains("no safetensors file"));

  CHECK_THAT(refusal_of_header("[]", 0), Contains("not a JSON object"));
  CHECK_THAT(refusal_of_header("{\"a\":", 0), Contains("not JSON"));
  CHECK_THAT(refusal_of_header(R"({"a":{"dtype":"F32"}})", 0), Contains("'a'"));
  CHECK_THAT(refusal_of_header(R"({"a":3})", 0), Contains("'a'"));
  const auto one = [](const std::string& dtype, const std::string& shape,
                      const std::string& offsets) {
    return R"({"a":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" +
           offsets + "}}";
  };
  CHECK(refusal_of_header(one("F32", "[2]", "[0,8]"), 8).empty());
  CHECK_THAT(refusal_of_header(one("I64", "[1]", "[0,8]"), 8), Contains("I64"));
  CHECK_THAT(refusal_of_header(one("F32", "[3]", "[0,8]"), 8), Contains("3 elements"));
  CHECK_THAT(refusal_of_header(one("F32", "[-2]", "[0,8]"), 8), Contains("shape"));
  CHECK_THAT(refusal_of_header(one("F32", "[2]", "[8,0]"), 8), Contains("damaged"));
  CHECK_THAT(refusal_of_header(one("F32", "[2]", "[0]"), 8), Contains("damaged"));
  CHECK_THAT(refusal_of_header(one("F32", "[2]", "[0,16]"), 8), Contains("truncated"));
  // 2^62 x 4 elements of 4 bytes are 0 in 64 bits.
  CHECK_THAT(refusal_of_header(one("F32", "[4611686018427387904,4]", "[0,0]"), 8),
             Contains("larger than the file"));
  CHECK_THAT(refusal_of_header(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                               R"("b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
                               12),
             Contains("overlap"));
  CHECK_THAT(refusal_of_header(one("F32", "[1]", "[4,8]"), 8), Contains("hole"));
  CHECK_THAT(refusal_of_header(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                               R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
                               4),
             Contains("two tensors") && Contains("'a'"));
}

TEST_CASE("no damaged byte of a header is more than an error", "[safetensors]") {
  const std::string header = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                             R"("b":{"dtype":"BF16","shape":[3,2],"data_offsets":[8,20]}})";
  const std::string whole = file_of(header, std::string(20, '\x3f'));
  const test::Folder folder;
  for (std::size_t i = 0; i < 8 + header.size(); ++i) {
    for (const char byte : {'\0', '\xff', '9', '-', '"', '[', '}'}) {
      std::string bytes = whole;
      bytes[i] = byte;
      folder.write("model.safetensors", bytes);
      try {  // some changes still make a file, another one; whatever it says must be readable
        const SafetensorsFolder files(folder.path());
        for (const auto& [name, entry] : files.tensors()) {
          std::int64_t elements = 1;
          for (const std::int64_t size : entry.shape) elements *= size;
          REQUIRE(elements <= 10);
          read_all(files, name, elements);
        }
      } catch (const Error& error) {
        REQUIRE_THAT(error.what(), Contains("model.safetensors"));
      }
    }
  }
}

TEST_CASE("tensors that do not fit the model are all named", "[safetensors]") {
  using Tensors = std::vector<SafetensorsTensor>;
  const std::string llama = "llama_one_document";
  CHECK(complaint(llama, [](Tensors&, ModelConfig&) {}).empty());
  const std::string text = complaint(llama, [](Tensors& tensors, ModelConfig&) {
    for (SafetensorsTensor& tensor : tensors) {
      if (tensor.name == "model.norm.weight") tensor.name = "model.final_norm.weight";
      if (tensor.name == "lm_head.weight") std::swap(tensor.shape[0], tensor.shape[1]);
      if (tensor.name == "model.layers.0.input_layernorm.weight") tensor.shape = {1, 32};
    }
  });
  CHECK_THAT(text, Contains("missing: model.norm.weight") &&
                       Contains("not of this model: model.final_norm.weight") &&
                       Contains("lm_head.weight is [32, 66] and should be [66, 32]") &&
                       Contains("input_layernorm.weight is [1, 32] and should be [32]"));

  const std::string many = complaint(llama, [](Tensors& tensors, ModelConfig&) {
    std::erase_if(tensors, [](const SafetensorsTensor& tensor) {
      return tensor.name.starts_with("model.layers.");
    });
  });
  CHECK_THAT(many, Contains("and 10 more"));  // of 2 x 9

  CHECK(complaint(llama, [](Tensors& tensors, ModelConfig&) {
          tensors.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq",
                             {1},
                             DType::f32,
                             [](std::int64_t, std::int64_t, double* out) { *out = 1; }});
        }).empty());
}

TEST_CASE("a tied model may carry an equal head", "[safetensors]") {
  const auto add_head = [](double difference) {
    return [difference](std::vector<SafetensorsTensor>& tensors, ModelConfig&) {
      SafetensorsTensor head;
      for (const SafetensorsTensor& tensor : tensors) {
        if (tensor.name == "model.embed_tokens.weight") head = tensor;
      }
      head.name = "lm_head.weight";
      head.produce = [embedding = head.produce, difference](std::int64_t begin, std::int64_t count,
                                                            double* out) {
        embedding(begin, count, out);
        out[count - 1] += difference;
      };
      tensors.push_back(head);
    };
  };
  CHECK(complaint("llama_six_layers", add_head(0)).empty());
  CHECK_THAT(complaint("llama_six_layers", add_head(1e-9)),
             Contains("lm_head.weight and model.embed_tokens.weight"));
}

TEST_CASE("shards are found through the index", "[safetensors]") {
  const std::string source = golden + "sliding_window";
  const SafetensorsFolder files(source);
  const ModelConfig config = read_hf_config(source);
  const ParameterLayout layout = layout_of(config);
  const test::Folder folder;
  std::vector<SafetensorsTensor> first = tensors_of(files), second;
  const auto middle = first.begin() + static_cast<long>(first.size() / 2);
  second.assign(middle, first.end());
  first.erase(middle, first.end());
  json map;
  for (const auto& tensor : first) map[tensor.name] = "model-00001-of-00002.safetensors";
  for (const auto& tensor : second) map[tensor.name] = "model-00002-of-00002.safetensors";
  const auto index = [&](const json& weight_map) {
    folder.write("model.safetensors.index.json", json{{"weight_map", weight_map}}.dump());
  };
  const auto opened = [&] { return error_of([&] { SafetensorsFolder{folder.path()}; }); };

  CHECK_THAT(opened(), Contains("neither model.safetensors nor"));
  index(map);
  write_safetensors(folder.file("model-00001-of-00002.safetensors"), first);
  CHECK_THAT(opened(), Contains("model-00002-of-00002.safetensors") && Contains("missing"));
  write_safetensors(folder.file("model-00002-of-00002.safetensors"), second);
  const SafetensorsFolder shards(folder.path());
  check_tensors(shards, config);
  std::vector<double> a(static_cast<std::size_t>(layout.size)), b = a;
  read_parameters(files, config, layout, 0, layout.size, a.data());
  read_parameters(shards, config, layout, 0, layout.size, b.data());
  CHECK(a == b);

  json wrong = map;
  wrong["model.norm.bias"] = "model-00001-of-00002.safetensors";
  index(wrong);
  CHECK_THAT(opened(), Contains("'model.norm.bias'"));
  wrong = map;
  wrong["model.norm.weight"] = "../model-00001-of-00002.safetensors";
  index(wrong);
  CHECK_THAT(opened(), Contains("not a file name"));
  folder.write("model.safetensors.index.json", "{}");
  CHECK_THAT(opened(), Contains("no index of shards"));
  index(map);
  second.push_back(first.front());
  write_safetensors(folder.file("model-00002-of-00002.safetensors"), second);
  CHECK_THAT(opened(), Contains("'" + first.front().name + "' is in"));
}

TEST_CASE("what is written is read back, rounded to its dtype", "[safetensors]") {
  const test::Folder folder;
  const std::string path = folder.file("model.safetensors");
  constexpr std::int64_t large = (1 << 20) + 3;  // more than one piece
  const auto value = [](std::int64_t i) { return 1.0 / static_cast<double>(i + 3); };
  const auto produce = [&](std::int64_t begin, std::int64_t count, double* out) {
    for (std::int64_t i = 0; i < count; ++i) out[i] = value(begin + i);
  };
  write_safetensors(path, {{"double", {5, 7}, DType::f64, produce},
                           {"brain", {3}, DType::bf16, produce},
                           {"empty", {0, 4}, DType::f32, produce},
                           {"single", {large}, DType::f32, produce}});
  const std::string bytes = test::read_bytes(path);
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  CHECK(length % 8 == 0);
  CHECK_FALSE(std::filesystem::exists(path + ".partial"));

  const SafetensorsFolder files(folder.path());
  CHECK(files.at("double").shape == std::vector<std::int64_t>{5, 7});
  CHECK(files.at("brain").dtype == "BF16");
  CHECK(read_all(files, "double", 35)[34] == value(34));
  CHECK(read_all(files, "brain", 3)[0] == 0.333984375);  // 171 / 512
  const auto single = read_all(files, "single", large);
  CHECK(single[0] == static_cast<float>(value(0)));
  CHECK(single[large - 1] == static_cast<float>(value(large - 1)));
}

TEST_CASE("a failed write leaves the old file and nothing else", "[safetensors]") {
  const test::Folder folder;
  folder.write("model.safetensors", "old");
  const auto produce = [](std::int64_t begin, std::int64_t, double*) {
    fail("element {} is not to be had", begin);
  };
  const std::string path = folder.file("model.safetensors");
  CHECK_THAT(error_of([&] {
               write_safetensors(path, {{"a", {3}, DType::f32, produce}});
             }),
             Contains("not to be had"));
  CHECK(test::read_bytes(path) == "old");
  CHECK_FALSE(std::filesystem::exists(path + ".partial"));
  CHECK_THAT(error_of([&] { write_safetensors(folder.file("no/such.safetensors"), {}); }),
             Contains("no/such.safetensors") && Contains("cannot be written"));
  CHECK_THAT(
      error_of([&] {
        write_safetensors(path, {{"a", {}, DType::f32, produce}, {"a", {}, DType::f32, produce}});
      }),
      Contains("'a'"));
}
