// Every key and gesture on one page.
#pragma once

namespace tidemark::view {

void draw_help(bool& open);

}  // namespace tidemark::view
