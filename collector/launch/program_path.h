// Programs as a shell finds them.
#pragma once

#include <string>

namespace tidemark {

// Where $PATH has the program; a name with a slash is taken as it is. "" when there is none.
std::string find_program(const std::string& name);

}  // namespace tidemark
