// SPDX-License-Identifier: Apache-2.0
// Files that survive a crash: written, flushed to the disk, renamed. Failures are Errors that carry
// the system's own text and what to do about it.
#pragma once

#include <cstdint>
#include <string>

namespace bdlm {

/// "cannot DOING PATH: the system's text; what to do", the last unless DOING is "read".
std::string system_message(const std::string& doing, const std::string& path, int error);

/// Flushes a file, or the names in a folder, to the disk.
void sync_path(const std::string& path);

/// Writes a new file; nothing is flushed.
void write_file(const std::string& path, const std::string& text);

/// Writes and flushes a new file; an old one of this name is replaced at once or not at all.
void replace_file(const std::string& path, const std::string& text);

/// Error where a file may not become so long (ulimit -f): HDF5 does not survive finding out.
void check_file_limit(const std::string& path, std::int64_t bytes);

/// Whole content.
std::string read_file(const std::string& path);

/// Renames and flushes the name; both are in the same folder.
void rename_durably(const std::string& from, const std::string& to);

}  // namespace bdlm
