// Names for people: ids as words, and the lines of a ledger with their explanations.
#pragma once

#include <string>
#include <string_view>

namespace tidemark::view {

// "optimizer_state" as people write it.
std::string in_words(std::string_view id);
// "torch.cached" -> "PyTorch, cached"; names of libraries stay as they are.
std::string owner_title(std::string_view owner);
// One sentence.
std::string_view owner_meaning(std::string_view owner);

}  // namespace tidemark::view
