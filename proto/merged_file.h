// Where a merged trace keeps which file a process was read from, if it has no rank: as a setting of
// the scope kImported with this key. Of several, the first one is the oldest.
#pragma once

#include <string_view>

namespace tidemark {

inline constexpr std::string_view kMergedFile = "file";

}  // namespace tidemark
