// The directory of trace indexes: who may use it, and what is removed when it is full.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "analysis/load/index_options.h"

namespace tidemark {

// The file that makes a directory an index.
inline constexpr const char* kIndexManifest = "manifest";
inline constexpr std::string_view kIndexMagic =
    "TMRKIDX";  // what it begins with; the version follows

// A new directory for an index under construction; empty when it cannot be created.
std::string make_index_place(const IndexOptions& options);
// Starts to write its files to disk; call sync_index later.
void start_writing_index(const std::string& place);
// Waits until all its files are on disk. False: one could not be written.
bool sync_index(const std::string& place);
// Renames it, replacing what has that name.
bool name_index(const std::string& place, const std::string& final_path);
// Removes the files of an index, and the directory if nothing else is in it.
void remove_index(const std::string& path);

// Whether only this user can write to it: files that others could have written are not trusted.
bool is_own_directory(const std::string& path);
// How large an index may become: limited by the space on the disk and by the options.
uint64_t index_space_bytes(const IndexOptions& options);

// Marks an index as just used.
void touch_index(const std::string& path);
// Removes the least recently used indexes until the rest fit, and unfinished ones left long ago.
void trim_indexes(const IndexOptions& options, const std::string& but_not);

}  // namespace tidemark
