// The directory that indexes of traces are kept in: who may use it, and what goes when it is full.
#pragma once

#include <cstdint>
#include <string>

#include "analysis/load/index_options.h"

namespace tidemark {

// A new directory for an index that is being made; empty when it cannot be made.
std::string make_index_place(const IndexOptions& options);
// All files in it are on the disk. False: one could not be written.
bool sync_index(const std::string& place);
// Gives it its name, in place of what has that name.
bool name_index(const std::string& place, const std::string& final_path);
void remove_index(const std::string& path);

// Ours alone: what others could have written is not believed.
bool is_own_directory(const std::string& path);
// How much an index may take: the room on the disk, and the limit of the options.
uint64_t index_room_bytes(const IndexOptions& options);

// Notes that an index was used now.
void touch_index(const std::string& path);
// Removes the least recently used until the rest fit, and what was left unfinished long ago.
void trim_indexes(const IndexOptions& options, const std::string& but_not);

}  // namespace tidemark
