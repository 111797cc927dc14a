// What the commands of proto/control.h do. All on the control thread.
#pragma once

#include <string_view>

#include "proto/control.h"

namespace tidemark::injector {

// `reply` is made anew.
void answer(std::string_view request, control::Line& reply) noexcept;

// A capture that was asked for with a length ends by itself: the milliseconds until then, -1 when
// there is none.
int ms_until_due() noexcept;
void act_when_due() noexcept;

}  // namespace tidemark::injector
