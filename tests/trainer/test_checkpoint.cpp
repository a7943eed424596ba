// SPDX-License-Identifier: Apache-2.0
// Checkpoints of one rank: round trips, everything that can be broken about one, kill -9, full
// disk.
#include <spdlog/spdlog.h>
#include <sys/mount.h>
#include <sys/wait.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <random>
#include <thread>

#include "parallel/silent_group.h"
#include "tests/trainer/test_checkpoint_state.h"
#include "trainer/checkpoint_files.h"
#include "trainer/checkpoint_manifest.h"

using namespace bdlm;
using namespace bdlm::test;
namespace fs = std::filesystem;
using Catch::Contains;

namespace {

const std::string run_file = "run:\n  name: \"test \xc3\xa9\"\n";

void save(const Folder& folder, const ParameterLayout& layout, const StateShare& share,
          std::int64_t step, std::int64_t keep = 0) {
  SilentGroup world(0, 1);  // without MPI
  save_checkpoint(world, MeshSizes{}, folder.path.string(), {step, 8 * step, step - 1, 1, 99},
                  run_file, layout, layout, share, keep);
}

std::vector<std::int64_t> steps(const Folder& folder) {
  std::vector<std::int64_t> found;
  for (const CheckpointInfo& info : list_checkpoints(folder.path.string())) {
    found.push_back(info.progress.step);
  }
  return found;
}

std::string load_error(const Folder& folder, const ParameterLayout& layout) {
  State state({{0, layout.size}}, DType::f32);
  return error_of([&] {
    load_checkpoint(open_checkpoint(folder.step(1).string()), layout, layout, true, state.share);
  });
}

/// Saved once as step 1, by one rank, for the tests that break it.
struct Saved {
  Saved() {
    State state({{0, layout.size}}, DType::f32);
    state.fill(layout);
    save(folder, layout, state.share, 1);
  }
  Folder folder;
  ParameterLayout layout = odd_layout();
  std::string shard() const { return (folder.step(1) / "shard_00000.h5").string(); }
};

/// 256 KiB over a folder, for root.
struct SmallDisk {
  explicit SmallDisk(const fs::path& folder)
      : path(folder), mounted(::mount("none", path.c_str(), "tmpfs", 0, "size=256k") == 0) {}
  ~SmallDisk() {
    if (mounted) ::umount2(path.c_str(), MNT_DETACH);
  }
  SmallDisk(const SmallDisk&) = delete;
  fs::path path;
  bool mounted;
};

/// The manifest with something changed and its checksum right again.
template <class F>
void edit_manifest(const Saved& saved, F&& change) {
  Manifest manifest = read_manifest(saved.folder.step(1).string());
  change(manifest);
  write_manifest(saved.folder.step(1).string(), manifest);
}

}  // namespace

TEST_CASE("a checkpoint gives back what was saved, in any partition and type") {
  const ParameterLayout layout = odd_layout();
  for (DType stored : {DType::f32, DType::f64}) {
    Folder folder;
    // adjoining parts too, as ZeRO's buckets are on one rank
    State state({{0, 5}, {5, 0}, {5, 30}, {35, layout.size - 35}}, stored);
    state.fill(layout);
    save(folder, layout, state.share, 7);
    const CheckpointInfo info = open_checkpoint(folder.path.string());
    CHECK(info.progress.step == 7);
    CHECK(info.progress.rows == 56);
    CHECK(info.progress.updates == 6);
    CHECK(info.progress.skips == 1);
    CHECK(info.progress.tokens == 99);
    CHECK(info.run_file == run_file);
    CHECK(info.mesh.ranks() == 1);
    CHECK(verify_checkpoint(info).empty());
    for (DType wanted : {DType::f32, DType::f64}) {
      for (std::int64_t parts : {1, 2, 3, 7, 50}) {
        for (std::int64_t part = 0; part < parts; ++part) {
          const std::int64_t begin = layout.size * part / parts;
          const std::int64_t end = layout.size * (part + 1) / parts;
          const std::int64_t cut = begin + (end - begin) / 3;  // a hole between two parts
          State got({{begin, cut - begin}, {std::min(cut + 2, end), end - std::min(cut + 2, end)}},
                    wanted);
          got.fill(layout, -1);
          load_checkpoint(info, layout, layout, true, got.share);
          REQUIRE(got.wrong(layout) == 0);
        }
      }
      State weights({{3, 70}}, wanted);
      weights.share.first = weights.share.second = {};
      load_checkpoint(info, layout, layout, false, weights.share);
      weights.share.first = weights.share.second = weights.share.master;
      CHECK(weights.wrong(layout, 1, 1) == 0);
    }
  }
}

TEST_CASE("large attributes and more than one slab") {
  ParameterLayout layout;  // one tensor of 3 columns, cut into many boxes
  layout.tensors.push_back({"w", 1 << 19, 3, false, 0, 1 << 19, 3});
  layout.size = 3 << 19;
  std::vector<FlatRange> parts;
  for (std::int64_t begin = 0; begin + 100 <= layout.size; begin += 200)
    parts.push_back({begin, 100});
  const auto last = parts.back().begin + 100;
  std::vector<FlatRange> rest;
  for (std::int64_t begin = 100; begin < last; begin += 200) rest.push_back({begin, 100});
  rest.push_back({last, layout.size - last});
  State one(parts, DType::f64), all({{0, layout.size}}, DType::f64);
  all.fill(layout);
  Folder folder("/dev/shm");
  save(folder, layout, all.share, 1);
  load_checkpoint(open_checkpoint(folder.path.string()), layout, layout, true, one.share);
  CHECK(one.wrong(layout) == 0);
  State again({{0, layout.size}}, DType::f32);  // a run of elements longer than a slab
  load_checkpoint(open_checkpoint(folder.path.string()), layout, layout, true, again.share);
  CHECK(again.wrong(layout) == 0);
  one.share.first = one.share.second = {};
  save(folder, layout, one.share, 2);
  CHECK_THAT(error_of([&] {
               load_checkpoint(open_checkpoint(folder.step(2).string()), layout, layout, false,
                               all.share);
             }),
             Contains("master/w: element 100 of 1572864 is not stored"));
}

TEST_CASE("weights without moments are a checkpoint of weights") {
  const ParameterLayout layout = odd_layout();
  State state({{0, layout.size}}, DType::f32);
  state.fill(layout);
  StateShare weights = state.share;
  weights.first = weights.second = {};
  Folder folder;
  save(folder, layout, weights, 1);
  CHECK(verify_checkpoint(open_checkpoint(folder.path.string())).empty());
  CHECK_THAT(load_error(folder, layout), Contains("holds no optimizer state (first)"));
}

TEST_CASE("the newest keep are kept, and the one just written always") {
  const ParameterLayout layout = odd_layout();
  State state({{0, layout.size}}, DType::f32);
  state.fill(layout);
  Folder folder;
  CHECK(steps(folder).empty());
  for (std::int64_t step : {1, 2, 3}) save(folder, layout, state.share, step, 2);
  CHECK(steps(folder) == std::vector<std::int64_t>{3, 2});
  save(folder, layout, state.share, 1, 2);  // resumed from an older one
  CHECK(steps(folder) == std::vector<std::int64_t>{3, 1});
  CHECK(read_file((folder.path / "checkpoints/latest").string()) == "step_00000001\n");
  save(folder, layout, state.share, 4, 0);
  CHECK(steps(folder) == std::vector<std::int64_t>{4, 3, 1});
  fs::create_directory(folder.path / "checkpoints/step_00000009.partial");
  fs::create_directory(folder.path / "checkpoints/step_00000008");  // no manifest
  CHECK(steps(folder) == std::vector<std::int64_t>{4, 3, 1});
  state.fill(layout, 2);
  save(folder, layout, state.share, 4);  // once more: replaced
  CHECK(!fs::exists(folder.path / "checkpoints/step_00000009.partial"));
  State got({{0, layout.size}}, DType::f32);
  load_checkpoint(open_checkpoint(folder.path.string()), layout, layout, true, got.share);
  CHECK(got.wrong(layout, 2) == 0);
}

TEST_CASE("a step, run or checkpoints folder opens, other things say why not") {
  Saved saved;
  const fs::path path = saved.folder.path;
  replace_file((path / "checkpoints/latest").string(), "nonsense");
  for (const fs::path& given : {path, path / "checkpoints", saved.folder.step(1)}) {
    CHECK(open_checkpoint(given.string()).progress.step == 1);
    CHECK(open_checkpoint(given.string() + "/").progress.step == 1);
  }
  const auto error = [](const fs::path& p) {
    return error_of([&] { open_checkpoint(p.string()); });
  };
  CHECK_THAT(error(path / "nowhere"), Contains("nowhere is not a folder"));
  // renamed aside for a newer save of the same step, then killed
  fs::rename(saved.folder.step(1), path / "checkpoints/step_00000001.replaced");
  CHECK(steps(saved.folder) == std::vector<std::int64_t>{1});
  fs::rename(path / "checkpoints/step_00000001.replaced", saved.folder.step(1));
  fs::remove(saved.folder.step(1) / "manifest.json");
  CHECK_THAT(error(saved.folder.step(1)), Contains("has no manifest.json"));
  CHECK_THAT(error(path), Contains("holds no complete checkpoint"));
  CHECK(steps(saved.folder).empty());
}

TEST_CASE("every changed bit of a shard's values and of the manifest is noticed") {
  Saved saved;
  const CheckpointInfo info = open_checkpoint(saved.folder.path.string());
  const std::string whole = read_file(saved.shard());
  // a value of first that stands nowhere else in the file
  State state({{0, saved.layout.size}}, DType::f32);
  state.fill(saved.layout);
  const float value = state.share.first.as<float>()[20];
  const std::size_t at = whole.find(std::string(reinterpret_cast<const char*>(&value), 4));
  REQUIRE(at != std::string::npos);
  for (int bit = 0; bit < 32; bit += 5) {
    std::string altered = whole;
    altered[at + static_cast<std::size_t>(bit / 8)] ^= static_cast<char>(1 << (bit % 8));
    replace_file(saved.shard(), altered);
    CHECK_THAT(load_error(saved.folder, saved.layout),
               Contains("first/model.embed_tokens.weight in " + saved.shard() + " was altered"));
    CHECK_THAT(verify_checkpoint(info), Contains("first/model.embed_tokens.weight"));
  }
  replace_file(saved.shard(), whole);
  CHECK(verify_checkpoint(info).empty());
  const std::string path = manifest_path(info.folder), manifest = read_file(path);
  const spdlog::level::level_enum level = spdlog::get_level();
  spdlog::set_level(spdlog::level::off);
  for (std::size_t i = 1; i < manifest.size(); i += 101) {
    if (manifest[i] == ' ' || manifest[i] == '\n') continue;
    std::string altered = manifest;
    altered[i] ^= 1;
    replace_file(path, altered);
    CHECK_THAT(verify_checkpoint(info), Contains("is not a usable manifest"));
    CHECK(steps(saved.folder).empty());
  }
  spdlog::set_level(level);
}

TEST_CASE("a shard that is cut, gone or swapped is named") {
  Saved saved;
  const CheckpointInfo info = open_checkpoint(saved.folder.path.string());
  const auto both = [&](const std::string& text) {
    CHECK_THAT(load_error(saved.folder, saved.layout), Contains(text));
    CHECK_THAT(verify_checkpoint(info), Contains(text));
  };
  const std::string whole = read_file(saved.shard());
  for (std::size_t size : {std::size_t{0}, std::size_t{7}, whole.size() / 2, whole.size() - 1}) {
    replace_file(saved.shard(), whole.substr(0, size));
    both(fmt::format("shard_00000.h5 has {} bytes, not {}: it was truncated", size, whole.size()));
  }
  replace_file(saved.shard(), whole + "x");
  both("it was altered");
  replace_file(saved.shard(), std::string(whole.size(), 'x'));
  both("cannot read " + saved.shard());
  fs::remove(saved.shard());
  both("shard_00000.h5 is missing");
}

TEST_CASE("tensors that are missing, extra or misshaped are all named") {
  Saved saved;
  ParameterLayout other = saved.layout;
  other.tensors[0].cols = other.tensors[0].whole_cols = 3;
  other.tensors[0].rows = other.tensors[0].whole_rows = 26;
  other.tensors[1].name = "model.layers.0.new.weight";
  other.tensors[4].vector = false;
  const std::string text = load_error(saved.folder, other);
  CHECK_THAT(text, Contains("model.embed_tokens.weight is [13, 6], the model's is [26, 3]"));
  CHECK_THAT(text, Contains("model.layers.0.new.weight is missing"));
  CHECK_THAT(text, Contains("model.layers.0.input_layernorm.weight [6] is not in the model"));
  CHECK_THAT(text, Contains("model.norm.weight is [6], the model's is [1, 6]"));
}

TEST_CASE("a manifest whose boxes do not cover the tensors is refused") {
  Saved saved;
  const CheckpointInfo info = open_checkpoint(saved.folder.path.string());
  const auto both = [&](const std::string& text) {
    CHECK_THAT(load_error(saved.folder, saved.layout), Contains(text));
    CHECK_THAT(verify_checkpoint(info), Contains(text));
  };
  const Manifest good = read_manifest(info.folder);
  edit_manifest(saved, [](Manifest& m) { m.files[0].datasets.pop_back(); });
  both("second/model.norm.weight: element 0 of 6 is not stored");
  edit_manifest(saved, [&](Manifest& m) {
    m = good;
    m.files[0].datasets.push_back(m.files[0].datasets[2]);
  });
  both("master/model.layers.0.mlp.down_proj.weight: element 0 is stored twice");
  edit_manifest(saved, [&](Manifest& m) {
    m = good;
    m.files[0].datasets[0].tensor = "model.unknown";
  });
  both("master/model.unknown in shard_00000.h5 is of an unknown tensor");
  edit_manifest(saved, [&](Manifest& m) {
    m = good;
    std::swap(m.files[0].datasets[1].tensor, m.files[0].datasets[4].tensor);
  });
  both("was altered");
  edit_manifest(saved, [&](Manifest& m) {
    m = good;
    m.files[0].dtype = DType::f64;
  });
  both("is not what the manifest says");
}

TEST_CASE("a full disk is an Error, leaves the old checkpoint and no other trace") {
  Folder folder;
  const SmallDisk disk(folder.path);
  if (!disk.mounted) {
    WARN("skipped: this user may not mount a small file system");
    return;
  }
  ParameterLayout layout = odd_layout();
  State small({{0, layout.size}}, DType::f32);
  small.fill(layout);
  save(folder, layout, small.share, 1);
  ParameterLayout large;
  large.tensors.push_back({"w", 1000, 100, false, 0, 1000, 100});
  large.size = 100000;
  State state({{0, large.size}}, DType::f32);
  for (int attempt = 0; attempt < 3; ++attempt) {
    CHECK_THAT(error_of([&] { save(folder, large, state.share, 2, 1); }),
               Contains("rank 0 on ") &&
                   Contains("shard_00000.h5: No space left on device; free") &&
                   Contains("older checkpoints are as they were"));
    CHECK(steps(folder) == std::vector<std::int64_t>{1});
    CHECK(!fs::exists(folder.path / "checkpoints/step_00000002.partial"));
  }
  // nothing at all left, so that HDF5 cannot even write its first block
  std::ofstream(folder.path / "filler") << std::string(1 << 20, 'x');
  CHECK_THAT(error_of([&] { save(folder, layout, small.share, 2, 1); }),
             Contains("No space left on device"));
  fs::remove(folder.path / "filler");
  save(folder, layout, small.share, 3, 1);
  CHECK(steps(folder) == std::vector<std::int64_t>{3});
  CHECK(verify_checkpoint(open_checkpoint(folder.path.string())).empty());
}

TEST_CASE("a folder that cannot be written is an Error that says so") {
  Folder folder;
  const ParameterLayout layout = odd_layout();
  State state({{0, layout.size}}, DType::f32);
  std::ofstream(folder.path / "checkpoints") << "a file where the folder should be";
  CHECK_THAT(error_of([&] { save(folder, layout, state.share, 1); }),
             Contains("cannot write " + (folder.path / "checkpoints").string()));
}

TEST_CASE("killed at any moment, what was completed is there and whole") {
  Folder folder("/dev/shm");  // flushing takes no time there, so that kills hit everything else too
  const ParameterLayout layout = odd_layout();
  State state({{0, layout.size}}, DType::f32);
  state.fill(layout);
  std::mt19937 random(1);
  std::int64_t completed = 0, unfinished = 0;
  for (int round = 0; round < 25; ++round) {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    const pid_t child = ::fork();
    if (child == 0) {    // saves for ever, every step twice, and tells which were completed
      ::close(ends[0]);  // so that it ends with its parent
      try {
        for (std::int64_t i = 2 * completed + 1;; ++i) {
          const std::int64_t step = i / 2;
          save(folder, layout, state.share, step, 2);
          if (::write(ends[1], &step, sizeof(step)) < 0) break;
        }
      } catch (...) {
      }
      ::_exit(1);
    }
    ::close(ends[1]);
    const auto completes = [&] { return ::read(ends[0], &completed, sizeof(completed)) > 0; };
    const auto start = std::chrono::steady_clock::now();
    REQUIRE(completes());
    const auto once = std::chrono::steady_clock::now() - start;
    std::this_thread::sleep_for(once * (random() % 1000) / 500);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    while (completes()) continue;
    ::close(ends[0]);
    const std::vector<CheckpointInfo> found = list_checkpoints(folder.path.string());
    REQUIRE(!found.empty());
    REQUIRE(found.front().progress.step >= completed);
    for (const CheckpointInfo& info : found) REQUIRE(verify_checkpoint(info).empty());
    for (const auto& entry : fs::directory_iterator(folder.path / "checkpoints")) {
      unfinished += entry.path().extension() == ".partial";
    }
  }
  CHECK(unfinished > 0);  // the kills did hit saves
}
