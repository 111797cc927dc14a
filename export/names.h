// How numbers and kinds are written for people, the same in every output.
#pragma once

#include "analysis/wording.h"
