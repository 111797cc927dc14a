// Which line of a stack is most useful to the user.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tidemark {

bool is_python_line(std::string_view frame);

// Frames in installed packages, and native frames, are not.
bool is_users_code(std::string_view frame);

// The innermost line of the user's code, else the node of the backward pass, else the innermost
// line.
std::string headline_of(const std::vector<std::string>& frames);

// Where that is, in short, "train.py:95"; the headline itself if it names no file.
std::string place_of(const std::vector<std::string>& frames);

// The lines of the user's code that called the headline, nearest first, "train train.py:95": at
// most `most`. Of modules around the headline's only the outermost is named, whose line tells which
// part of the model ran.
std::vector<std::string> callers_of(const std::vector<std::string>& frames, size_t most);

// The first caller of the headline in the user's code by which a stack differs from another one
// with the same headline; else the line of a library's function, below the headline, by which they
// differ; empty if there is none.
std::string caller_unlike(const std::vector<std::string>& frames,
                          const std::vector<std::string>& others);

// The function that the headline calls, "pad", if another one than its own allocates there; else
// the operation, if native frames name it; empty otherwise.
std::string function_called_at(const std::vector<std::string>& frames);

// The operation in which the memory was allocated, where native frames name it, else the innermost
// frame that is not the allocator's; empty without frames.
std::string inner_line_of(const std::vector<std::string>& frames);

// A stack in short, innermost first: the operation and the lines of Python; without any, the frames
// from the innermost one that is not the allocator's.
std::vector<std::string> lines_to_show(const std::vector<std::string>& frames);

// The innermost frame that is not the allocator's; null when there are no frames.
const std::string* innermost_worth_showing(const std::vector<std::string>& frames);

}  // namespace tidemark
