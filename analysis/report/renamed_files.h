// Files of the program that have another name in the other one of two runs: a copy of a script, or
// of a whole checkout, in which something was changed.
//
// Two files are the same if the greater part of their functions have the same names. That is chance
// where they are few or called as everywhere (main), so either three that are not must agree, or
// the names of the files do. The bytes are not asked: the answer is the same at every instant.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tidemark {

struct RenamedFile {
  std::string before;
  std::string after;

  // "after.py is compared with before.py".
  std::string text() const;
};

// The function and the file of "function file.py:12"; empty if it is not a line of Python.
std::pair<std::string_view, std::string_view> function_and_file(std::string_view frame);

// The line of Python with the last part of its function's name: "Engine.run chat.py:118" becomes
// "run chat.py:118". Other frames stay as they are.
std::string_view with_last_name(std::string_view frame);

// "Engine.run" and "run": one of them may be named by its last part only.
bool is_same_function(std::string_view one, std::string_view other);

// The functions of each file, by its name. The texts must outlive it.
using FileFunctions = std::map<std::string_view, std::set<std::string_view>>;

// Files that only one of the runs has, at most one for each.
std::vector<RenamedFile> renamed_files(const FileFunctions& before, const FileFunctions& after);

}  // namespace tidemark
