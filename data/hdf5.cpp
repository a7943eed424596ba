// SPDX-License-Identifier: Apache-2.0
// Attributes as h5py writes them: strings of fixed or variable length, integers of any width.
#include "data/hdf5.h"

#include <vector>

namespace bdlm::hdf5 {

Quiet::Quiet() {
  H5Eget_auto2(H5E_DEFAULT, &function_, &data_);
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

Quiet::~Quiet() { H5Eset_auto2(H5E_DEFAULT, function_, data_); }

namespace {

Handle scalar_space() { return {H5Screate(H5S_SCALAR), H5Sclose}; }

Handle open_attribute(hid_t object, const char* name) {
  return {H5Aexists(object, name) > 0 ? H5Aopen(object, name, H5P_DEFAULT) : -1, H5Aclose};
}

bool has_one_value(const Handle& attribute) {
  const Handle space(H5Aget_space(attribute.id()), H5Sclose);
  return H5Sget_simple_extent_npoints(space.id()) == 1;
}

}  // namespace

std::optional<std::string> read_string(hid_t object, const char* name) {
  const Quiet quiet;
  const Handle attribute = open_attribute(object, name);
  if (!attribute.ok() || !has_one_value(attribute)) return std::nullopt;
  const Handle type(H5Aget_type(attribute.id()), H5Tclose);
  if (H5Tget_class(type.id()) != H5T_STRING) return std::nullopt;
  if (H5Tis_variable_str(type.id()) > 0) {
    char* text = nullptr;
    if (H5Aread(attribute.id(), type.id(), &text) < 0 || text == nullptr) return std::nullopt;
    std::string value(text);
    H5free_memory(text);
    return value;
  }
  std::vector<char> text(H5Tget_size(type.id()) + 1, '\0');
  if (H5Aread(attribute.id(), type.id(), text.data()) < 0) return std::nullopt;
  return std::string(text.data());
}

std::optional<std::int64_t> read_integer(hid_t object, const char* name) {
  const Quiet quiet;
  const Handle attribute = open_attribute(object, name);
  if (!attribute.ok() || !has_one_value(attribute)) return std::nullopt;
  const Handle type(H5Aget_type(attribute.id()), H5Tclose);
  std::int64_t value = 0;
  if (H5Tget_class(type.id()) != H5T_INTEGER ||
      H5Aread(attribute.id(), H5T_NATIVE_INT64, &value) < 0)
    return std::nullopt;
  return value;
}

bool write_string(hid_t object, const char* name, const std::string& value) {
  const Handle type(H5Tcopy(H5T_C_S1), H5Tclose);
  H5Tset_size(type.id(), value.size() + 1);
  H5Tset_cset(type.id(), H5T_CSET_UTF8);
  const Handle space = scalar_space();
  const Handle attribute(H5Acreate2(object, name, type.id(), space.id(), H5P_DEFAULT, H5P_DEFAULT),
                         H5Aclose);
  return attribute.ok() && H5Awrite(attribute.id(), type.id(), value.c_str()) >= 0;
}

bool write_integer(hid_t object, const char* name, std::int64_t value) {
  const Handle space = scalar_space();
  const Handle attribute(
      H5Acreate2(object, name, H5T_STD_I64LE, space.id(), H5P_DEFAULT, H5P_DEFAULT), H5Aclose);
  return attribute.ok() && H5Awrite(attribute.id(), H5T_NATIVE_INT64, &value) >= 0;
}

}  // namespace bdlm::hdf5
