// Names and explanations for the lines of a ledger.
#pragma once

#include <string>
#include <string_view>

namespace tidemark::view {

// "torch.cached" -> "PyTorch, cached"; names of libraries stay as they are.
std::string owner_title(std::string_view owner);
// One sentence.
std::string_view owner_meaning(std::string_view owner);

}  // namespace tidemark::view
