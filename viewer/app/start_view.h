// What the command line asks to see first: a panel, a rank, a time, steps, a search.
#pragma once

#include <string>

#include "viewer/app/panels.h"

namespace tidemark::view {

struct StartView {
  std::string panel;  // "map", "map:age"
  // "peak", "oom", a time since the start (1.5, 1.5s, 20ms, 300us), or two: "1.5s..2s"
  std::string time;
  std::string search;
  std::string rank{};   // "3"
  std::string steps{};  // to compare in the stack: "3,7"
  // As link_to() writes them; the command line has no options for these.
  std::string lane{};  // of the cursor, by its number
  std::string view{};  // the visible time: "20ms-1.5s"
  bool alone = false;  // the panel over the whole window
};

// Whether all of it is of a known form, before a trace is read.
Status check_start(const StartView& start);

// Moves the cursor and sets the search.
Status go_to_start(const StartView& start, const Model& model, Selection& selection);

// Compares the steps that are asked for, which are known with the report. The cursor moves to the
// peak of the second one, unless a time is asked for, too.
Status choose_steps(const StartView& start, const Model& model, Selection& selection,
                    StackPanelOptions& options);

// The other way round, as the fragment of a link: "time=20ms&lane=1&view=0s-1.5s".
std::string link_to(const Model& model, const Selection& selection);

}  // namespace tidemark::view
