// SPDX-License-Identifier: Apache-2.0
// Token files: what is written is read back, what is wrong is refused by name, whoever wrote it.
#include <hdf5.h>
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <random>
#include <sstream>

#include "data/token_file.h"
#include "files.h"

using namespace bdlm;
using Catch::Matchers::Contains;

namespace {

struct Sample {
  std::vector<std::vector<std::int32_t>> documents;
  std::vector<std::vector<std::uint8_t>> masks;
};

Sample make_sample(std::int64_t vocab_size, bool masked) {
  std::mt19937 random(3);
  Sample sample;
  for (std::int64_t length : {1, 40, 7, 300, 2, 19}) {
    std::vector<std::int32_t> tokens(length);
    for (auto& token : tokens)
      token = static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(vocab_size - 1));
    std::vector<std::uint8_t> mask(length, 1);
    if (masked)
      for (auto& value : mask) value = random() % 2;
    sample.documents.push_back(tokens);
    sample.masks.push_back(mask);
  }
  return sample;
}

TokenFileInfo make_info(std::int64_t vocab_size) {
  return {vocab_size, "words", "abc", vocab_size - 2, vocab_size - 1, "a test, ünïcode"};
}

void write(const std::string& path, const Sample& sample, const TokenFileInfo& info) {
  TokenFileWriter writer(path, info);
  for (std::size_t d = 0; d < sample.documents.size(); ++d)
    writer.add(sample.documents[d], sample.masks[d]);
  writer.finish();
}

void check_equal(const TokenFile& file, const Sample& sample) {
  REQUIRE(file.document_count() == static_cast<std::int64_t>(sample.documents.size()));
  for (std::size_t d = 0; d < sample.documents.size(); ++d) {
    const auto length = static_cast<std::int64_t>(sample.documents[d].size());
    REQUIRE(file.document_length(d) == length);
    std::vector<std::int32_t> tokens(length);
    std::vector<std::uint8_t> mask(length);
    file.read_tokens(file.document_begin(d), tokens);
    file.read_loss_mask(file.document_begin(d), mask);
    CHECK(tokens == sample.documents[d]);
    CHECK(mask == sample.masks[d]);
  }
}

std::string bytes_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// Where a file made here differs from a good one.
struct Variant {
  hid_t token_type = H5T_STD_I64LE;
  std::vector<std::int64_t> tokens = {5, 6, 7, 8, 9}, documents = {0, 2, 5};
  std::vector<std::int64_t> loss_mask;
  const char* format = "bdlm.tokens/1";
  std::int64_t vocab_size = 10, mask_token_id = -1;
  bool chunked = false;
  const char* left_out = "";
};

void put(hid_t file, const char* name, const std::vector<std::int64_t>& values, hid_t type,
         const Variant& variant) {
  if (std::string(name) == variant.left_out) return;
  const hsize_t size = values.size(), chunk = 2;
  const hid_t space = H5Screate_simple(1, &size, nullptr);
  const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
  if (variant.chunked) H5Pset_chunk(creation, 1, &chunk);
  const hid_t set = H5Dcreate2(file, name, type, space, H5P_DEFAULT, creation, H5P_DEFAULT);
  H5Dwrite(set, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data());
  H5Dclose(set);
  H5Pclose(creation);
  H5Sclose(space);
}

/// Through HDF5 alone, as another program would.
void write_variant(const std::string& path, const Variant& variant) {
  const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  put(file, "tokens", variant.tokens, variant.token_type, variant);
  put(file, "documents", variant.documents, H5T_STD_I64LE, variant);
  if (!variant.loss_mask.empty()) put(file, "loss_mask", variant.loss_mask, H5T_STD_U8LE, variant);
  const hid_t space = H5Screate(H5S_SCALAR);
  const hid_t text = H5Tcopy(H5T_C_S1);
  H5Tset_size(text, H5T_VARIABLE);
  hid_t attribute = H5Acreate2(file, "format", text, space, H5P_DEFAULT, H5P_DEFAULT);
  H5Awrite(attribute, text, &variant.format);
  H5Aclose(attribute);
  for (const auto& [name, value] :
       {std::pair{"vocab_size", variant.vocab_size}, {"mask_token_id", variant.mask_token_id}}) {
    attribute = H5Acreate2(file, name, H5T_STD_I32BE, space, H5P_DEFAULT, H5P_DEFAULT);
    H5Awrite(attribute, H5T_NATIVE_INT64, &value);
    H5Aclose(attribute);
  }
  H5Tclose(text);
  H5Sclose(space);
  H5Fclose(file);
}

}  // namespace

TEST_CASE("token file: what is written is read back", "[token_file]") {
  const TemporaryFolder folder;
  const std::string path = folder / "a.h5";
  for (std::int64_t vocab_size : {300, 65536, 65537, 150000})
    for (bool masked : {false, true}) {
      CAPTURE(vocab_size, masked);
      const Sample sample = make_sample(vocab_size, masked);
      write(path, sample, make_info(vocab_size));
      const TokenFile file(path);
      check_equal(file, sample);
      CHECK(file.has_loss_mask() == masked);
      CHECK(file.info().vocab_size == vocab_size);
      CHECK(file.info().tokenizer == "words");
      CHECK(file.info().tokenizer_sha256 == "abc");
      CHECK(file.info().eos_token_id == vocab_size - 2);
      CHECK(file.info().mask_token_id == vocab_size - 1);
      CHECK(file.info().source == "a test, ünïcode");
      CHECK(file.verify().size() == (masked ? 3 : 2));
      CHECK(folder.file_count() == 1);  // no temporary file is left
    }
}

TEST_CASE("token file: the largest id of every vocabulary is kept", "[token_file]") {
  const TemporaryFolder folder;
  for (std::int64_t vocab_size : {65536, 65537, 1 << 20}) {
    TokenFileInfo info;
    info.vocab_size = vocab_size;
    const Sample sample{{{0, static_cast<std::int32_t>(vocab_size - 1)}}, {{1, 1}}};
    write(folder / "a.h5", sample, info);
    check_equal(TokenFile(folder / "a.h5"), sample);
  }
}

TEST_CASE("token file: no documents, empty documents", "[token_file]") {
  const TemporaryFolder folder;
  write(folder / "none.h5", {}, make_info(300));
  CHECK(TokenFile(folder / "none.h5").document_count() == 0);
  CHECK(TokenFile(folder / "none.h5").verify().size() == 2);
  write(folder / "empty.h5", {{{}, {4}, {}}, {{}, {1}, {}}}, make_info(300));
  CHECK(TokenFile(folder / "empty.h5").document_count() == 1);
}

TEST_CASE("token file: the writer refuses ids that it cannot keep", "[token_file]") {
  const TemporaryFolder folder;
  TokenFileWriter writer(folder / "a.h5", make_info(300));
  const std::vector<std::vector<std::int32_t>> wrong = {{1, 300}, {-1}, {1, 2, 299}};
  for (const auto& tokens : wrong)
    CHECK_THAT(error_of([&] { writer.add(tokens, {}); }),
               Contains("a.h5: document 0 has token id"));
  const std::vector<std::int32_t> good = {1, 2};
  const std::vector<std::uint8_t> mask = {1};
  CHECK_THROWS_AS(writer.add(good, mask), Error);
  CHECK_THAT(error_of([&] { TokenFileWriter(folder / "no/such/a.h5", make_info(300)); }),
             Contains("No such file"));
}

TEST_CASE("token file: without finish, or on a full disk, there is no file", "[token_file]") {
  const TemporaryFolder folder;
  const std::string path = folder / "a.h5";
  { TokenFileWriter(path, make_info(300)).add(std::vector<std::int32_t>{1, 2}, {}); }
  CHECK(folder.file_count() == 0);

  write(path, make_sample(300, true), make_info(300));
  const std::string before = bytes_of(path);
  rlimit old{};
  getrlimit(RLIMIT_FSIZE, &old);
  const auto old_handler = signal(SIGXFSZ, SIG_IGN);
  for (rlim_t limit : {100000, 500000}) {  // while spooling; while copying into place
    TokenFileWriter writer(path, make_info(300));
    const rlimit small{limit, old.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
    const std::vector<std::int32_t> tokens(limit == 100000 ? 1000000 : 200000, 7);
    const std::string error = error_of([&] {
      writer.add(tokens, std::vector<std::uint8_t>(tokens.size(), 0));
      writer.finish();
    });
    setrlimit(RLIMIT_FSIZE, &old);
    CHECK_THAT(error, Contains("a.h5: cannot write the token file") && Contains("File too large"));
    CHECK(folder.file_count() == 1);
    CHECK(bytes_of(path) == before);  // the old file is as it was
  }
  signal(SIGXFSZ, old_handler);
}

TEST_CASE("token file: any integer type that another program wrote", "[token_file]") {
  const TemporaryFolder folder;
  const std::string path = folder / "a.h5";
  for (hid_t type : {H5T_STD_U8LE, H5T_STD_I8LE, H5T_STD_U16LE, H5T_STD_I16LE, H5T_STD_U32LE,
                     H5T_STD_I32LE, H5T_STD_I64LE, H5T_STD_U64LE}) {
    Variant variant;
    variant.token_type = type;
    variant.loss_mask = {0, 1, 1, 0, 2};
    write_variant(path, variant);
    const TokenFile file(path);
    check_equal(file, {{{5, 6}, {7, 8, 9}}, {{0, 1}, {1, 0, 1}}});
    CHECK(file.info().tokenizer.empty());
    CHECK(file.info().eos_token_id == -1);
    CHECK(file.verify().empty());
  }
}

TEST_CASE("token file: what is wrong is named", "[token_file]") {
  const TemporaryFolder folder;
  const std::string path = folder / "a.h5";
  const auto refused = [&](const Variant& variant) {
    write_variant(path, variant);
    const std::string error = error_of([&] { TokenFile(path).verify(); });
    CHECK_THAT(error, Contains(path + ": "));
    return error;
  };
  Variant v;
  v.format = "other/2";
  CHECK_THAT(refused(v), Contains("attribute format is 'other/2'"));
  v = {};
  v.vocab_size = 0;
  CHECK_THAT(refused(v), Contains("vocab_size"));
  for (const char* name : {"tokens", "documents"}) {
    v = {};
    v.left_out = name;
    CHECK_THAT(refused(v), Contains(std::string("dataset /") + name + " cannot be opened"));
  }
  v = {};
  v.chunked = true;
  CHECK_THAT(refused(v), Contains("chunked") && Contains("h5repack"));
  v = {};
  v.token_type = H5T_IEEE_F32LE;
  CHECK_THAT(refused(v), Contains("integers"));
  v.token_type = H5T_STD_U16BE;
  CHECK_THAT(refused(v), Contains("little-endian"));
  for (std::vector<std::int64_t> documents :
       {std::vector<std::int64_t>{0, 4}, {1, 5}, {0, 2, 6}, {}}) {
    v = {};
    v.documents = documents;
    CHECK_THAT(refused(v), Contains("/documents"));
  }
  v = {};
  v.documents = {0, 3, 2, 5};
  CHECK_THAT(refused(v), Contains("document 1 begins at 3 and ends at 2"));
  v = {};
  v.loss_mask = {1, 1};
  CHECK_THAT(refused(v), Contains("/loss_mask has 2 values for 5 tokens"));
  v = {};
  v.vocab_size = 9;
  CHECK_THAT(refused(v), Contains("document 1 has token id 9 at offset 2, vocab_size is 9"));
  v = {};
  v.mask_token_id = 8;
  CHECK_THAT(refused(v), Contains("document 1 has the mask id 8 at offset 1"));
  v = {};
  v.tokens[1] = std::int64_t{1} << 40;
  CHECK_THAT(refused(v), Contains("document 0 has token id 1099511627776"));
}

TEST_CASE("token file: foreign, cut and altered files are named", "[token_file]") {
  const TemporaryFolder folder;
  const std::string path = folder / "a.h5", cut = folder / "cut.h5";
  CHECK_THAT(error_of([&] { TokenFile{path}; }), Contains(path) && Contains("No such file"));
  write_text(path, "");
  CHECK_THAT(error_of([&] { TokenFile{path}; }), Contains("not an HDF5 file"));
  write_text(path, std::string(5000, 'x'));
  CHECK_THAT(error_of([&] { TokenFile{path}; }), Contains("not an HDF5 file"));
  CHECK_THAT(error_of([&] { TokenFile(folder / "."); }), Contains("not a regular file"));

  write(path, make_sample(70000, true), make_info(70000));
  const std::string whole = bytes_of(path);
  for (std::size_t size = 1; size < whole.size(); size += 97) {
    write_text(cut, whole.substr(0, size));
    CHECK_THAT(error_of([&] { TokenFile{cut}; }), Contains(cut + ": "));
  }
  write_text(cut, whole.substr(0, whole.size() - 1));
  CHECK_THAT(error_of([&] { TokenFile{cut}; }), Contains("cut short"));

  // A byte of the ids, found by a run of them.
  std::vector<std::int32_t> ids(8);
  TokenFile(path).read_tokens(100, ids);
  const std::string needle(reinterpret_cast<const char*>(ids.data()), 32);
  const std::size_t at = whole.find(needle);
  REQUIRE(at != std::string::npos);
  std::string altered = whole;
  altered[at] = static_cast<char>(altered[at] ^ 1);
  write_text(cut, altered);
  CHECK_THAT(error_of([&] { TokenFile(cut).verify(); }),
             Contains("/tokens has checksum") && Contains("altered or damaged"));

  // The place of the ids, as HDF5 wrote it down: it must not send us beyond the file.
  const std::uint64_t place = at - 400, beyond = place + (1 << 20);
  const std::size_t noted = whole.find(std::string(reinterpret_cast<const char*>(&place), 8));
  REQUIRE(noted != std::string::npos);
  altered = whole;
  altered.replace(noted, 8, reinterpret_cast<const char*>(&beyond), 8);
  write_text(cut, altered);
  CHECK_THAT(error_of([&] { TokenFile{cut}; }), Contains("dataset /tokens"));
}

TEST_CASE("token file: the h5py example of docs/formats.md", "[token_file]") {
  const std::string python = "/usr/bin/python3";
  if (std::system((python + " -c 'import h5py, numpy' 2> /dev/null").c_str()) != 0) {
    WARN("skipped: " << python << " has no h5py");
    return;
  }
  const std::string page = bytes_of(BDLM_SOURCE "/docs/formats.md");
  const std::size_t begin = page.find("```python\n") + 10;
  const std::size_t end = page.find("```", begin);
  REQUIRE(end != std::string::npos);
  const std::string example = page.substr(begin, end - begin);
  CHECK(std::count(example.begin(), example.end(), '\n') <= 12);
  const TemporaryFolder folder;
  write_text(folder / "example.py", example);
  REQUIRE(std::system(("cd " + (folder / ".") + " && " + python + " example.py").c_str()) == 0);
  const TokenFile file(folder / "mine.h5");
  check_equal(file, {{{5, 6, 7}, {8, 9}}, {{0, 1, 1}, {1, 1}}});
  CHECK(file.verify().empty());
  CHECK(file.info().vocab_size == 50000);
}
