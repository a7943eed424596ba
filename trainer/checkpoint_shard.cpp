// SPDX-License-Identifier: Apache-2.0
// HDF5 calls. Its error stack is not printed but becomes the Error's text.
#include "trainer/checkpoint_shard.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <utility>

#include "data/hdf5.h"
#include "kernels/error.h"
#include "trainer/checkpoint_files.h"

namespace bdlm {
namespace {

using hdf5::Handle;

herr_t keep_innermost(unsigned n, const H5E_error2_t* entry, void* text) {
  if (n == 0 && entry->desc != nullptr) *static_cast<std::string*>(text) = entry->desc;
  return 0;
}

/// The system's errno where HDF5's innermost message has one, else that message.
[[noreturn]] void fail_hdf5(const std::string& doing, const std::string& path) {
  std::string text;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_innermost, &text);
  const std::string key = "errno = ";
  const std::size_t at = text.find(key);
  if (at != std::string::npos) {
    const int error = std::atoi(text.c_str() + at + key.size());
    if (error != 0) fail("{}", system_message(doing, path, error));
  }
  fail("cannot {} {}: HDF5 says: {}", doing, path, text.empty() ? "nothing more" : text);
}

hid_t stored_type(DType type) { return type == DType::f64 ? H5T_IEEE_F64LE : H5T_IEEE_F32LE; }

void write_attribute(hid_t object, const char* name, const std::vector<hsize_t>& extents,
                     const std::int64_t* values, const std::string& path) {
  const Handle space(H5Screate_simple(static_cast<int>(extents.size()), extents.data(), nullptr),
                     H5Sclose);
  const Handle attribute(
      H5Acreate2(object, name, H5T_STD_I64LE, space.id(), H5P_DEFAULT, H5P_DEFAULT), H5Aclose);
  if (!attribute.ok() || H5Awrite(attribute.id(), H5T_NATIVE_INT64, values) < 0)
    fail_hdf5("write", path);
}

/// HDF5 1.10 leaves a dangling file behind, and crashes at exit, when closing cannot write. After a
/// failure its descriptor therefore goes to memory, where the rest of what it has to write fits.
void abandon(hid_t file) {
  int* descriptor = nullptr;
  const int memory = ::memfd_create("abandoned checkpoint", MFD_CLOEXEC);
  if (memory >= 0 &&
      H5Fget_vfd_handle(file, H5P_DEFAULT, reinterpret_cast<void**>(&descriptor)) >= 0) {
    ::dup2(memory, *descriptor);
  }
  if (memory >= 0) ::close(memory);
  H5Fclose(file);
}

hid_t file_access() {
  const hid_t access = H5Pcreate(H5P_FILE_ACCESS);
  // 1.8's format has no limit on the size of attributes (boxes). No file locks: parallel file
  // systems often refuse them, and nobody reads a file before it is complete.
  H5Pset_libver_bounds(access, H5F_LIBVER_V18, H5F_LIBVER_LATEST);
#if H5_VERSION_GE(1, 10, 7)
  H5Pset_file_locking(access, false, true);
#endif
  return access;
}

/// Made in memory and written by ourselves, because a full disk in H5Fcreate has the same effect.
std::string empty_file() {
  const Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  H5Pset_fapl_core(access.id(), 1 << 16, false);
  const Handle file(H5Fcreate("empty", H5F_ACC_TRUNC, H5P_DEFAULT, access.id()), H5Fclose);
  H5Fflush(file.id(), H5F_SCOPE_GLOBAL);
  std::string image(
      static_cast<std::size_t>(std::max<ssize_t>(0, H5Fget_file_image(file.id(), nullptr, 0))), 0);
  if (H5Fget_file_image(file.id(), image.data(), image.size()) <= 0)
    fail_hdf5("make", "an HDF5 file");
  return image;
}

}  // namespace

ShardWriter::ShardWriter(const std::string& path) : path_(path) {
  const hdf5::Quiet quiet;
  write_file(path, empty_file());
  const Handle access(file_access(), H5Pclose);
  file_ = H5Fopen(path.c_str(), H5F_ACC_RDWR, access.id());
  if (file_ < 0) fail_hdf5("write", path);
}

ShardWriter::~ShardWriter() {
  if (file_ < 0) return;
  const hdf5::Quiet quiet;
  abandon(file_);
}

void ShardWriter::write(const std::string& name, const std::vector<std::int64_t>& shape,
                        const std::vector<Box>& boxes, DType type, const void* values) {
  const hdf5::Quiet quiet;
  hsize_t count = 0;
  std::vector<std::int64_t> table;
  for (const Box& box : boxes) {
    count += static_cast<hsize_t>(box.size());
    table.insert(table.end(), {box.row, box.col, box.rows, box.cols});
  }
  const Handle space(H5Screate_simple(1, &count, nullptr), H5Sclose);
  const Handle links(H5Pcreate(H5P_LINK_CREATE), H5Pclose);
  H5Pset_create_intermediate_group(links.id(), 1);
  const Handle creation(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
  H5Pset_fill_time(creation.id(), H5D_FILL_TIME_NEVER);
  Handle dataset(H5Dcreate2(file_, name.c_str(), stored_type(type), space.id(), links.id(),
                            creation.id(), H5P_DEFAULT),
                 H5Dclose);
  if (!dataset.ok()) fail_hdf5("write", path_);
  write_attribute(dataset.id(), "shape", {shape.size()}, shape.data(), path_);
  write_attribute(dataset.id(), "boxes", {boxes.size(), 4}, table.data(), path_);
  if (H5Dwrite(dataset.id(), stored_type(type), H5S_ALL, H5S_ALL, H5P_DEFAULT, values) < 0 ||
      !dataset.close()) {
    fail_hdf5("write", path_);
  }
}

void ShardWriter::close() {
  const hdf5::Quiet quiet;
  // flushed first: after that closing writes nothing new, so that it cannot meet a full disk
  if (H5Fflush(file_, H5F_SCOPE_GLOBAL) < 0) fail_hdf5("write", path_);
  if (H5Fclose(std::exchange(file_, H5I_INVALID_HID)) < 0) fail_hdf5("close", path_);
  sync_path(path_);
}

ShardReader::ShardReader(const std::string& path) : path_(path) {
  const hdf5::Quiet quiet;
  const Handle access(file_access(), H5Pclose);
  file_ = H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.id());
  if (file_ < 0) fail_hdf5("read", path);
}

ShardReader::~ShardReader() { H5Fclose(file_); }

void ShardReader::read(const std::string& name, DType type, std::int64_t count, const Slab& slab) {
  const hdf5::Quiet quiet;
  const Handle dataset(H5Dopen2(file_, name.c_str(), H5P_DEFAULT), H5Dclose);
  if (!dataset.ok()) fail("{} has no dataset {}: use another checkpoint", path_, name);
  const Handle space(H5Dget_space(dataset.id()), H5Sclose);
  const Handle stored(H5Dget_type(dataset.id()), H5Tclose);
  if (H5Sget_simple_extent_ndims(space.id()) != 1 ||
      H5Sget_simple_extent_npoints(space.id()) != count ||
      H5Tequal(stored.id(), stored_type(type)) <= 0) {
    fail("{} of {} is not what the manifest says ({} values of {}): use another checkpoint", name,
         path_, count, name_of(type));
  }
  constexpr std::int64_t slab_bytes = 8 << 20;
  const auto element = static_cast<std::int64_t>(size_of(type));
  std::vector<std::byte> buffer(static_cast<std::size_t>(std::min(slab_bytes, count * element)));
  for (std::int64_t first = 0; first < count; first += slab_bytes / element) {
    const hsize_t start = static_cast<hsize_t>(first);
    const hsize_t n = static_cast<hsize_t>(std::min(slab_bytes / element, count - first));
    const Handle memory(H5Screate_simple(1, &n, nullptr), H5Sclose);
    H5Sselect_hyperslab(space.id(), H5S_SELECT_SET, &start, nullptr, &n, nullptr);
    if (H5Dread(dataset.id(), stored.id(), memory.id(), space.id(), H5P_DEFAULT, buffer.data()) <
        0) {
      fail_hdf5("read", path_);
    }
    slab({buffer.data(), n * size_of(type)}, first);
  }
}

}  // namespace bdlm
