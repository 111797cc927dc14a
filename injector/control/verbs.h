// Implements the commands of proto/control.h. Everything runs on the control thread.
#pragma once

#include <string_view>

#include "proto/control.h"

namespace tidemark::injector {

// `reply` is overwritten.
void answer(std::string_view request, control::Line& reply) noexcept;

// For a capture with a time limit: milliseconds until it ends (-1: no limit), and ending it when
// due.
int ms_until_due() noexcept;
void act_when_due() noexcept;

}  // namespace tidemark::injector
