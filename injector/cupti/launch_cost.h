// Measures what CUPTI's recording of a kernel adds to its launch, in the program itself.
//
// For a few launches the driver's launch calls are timed from ENTER to EXIT, with kernels on and
// with kernels off, in alternation: the machine's drift cancels. The difference is the cost; what
// the callbacks themselves cost is in both. The lower quartile of each turn is compared, because a
// launch into a full queue waits for the card. If most of them do, the measurement is not used.
//
// The callback runs on the host's threads and only stores numbers; all else is the task thread's.
#pragma once

#include <cstdint>
#include <optional>

#include "abi/cupti.h"
#include "injector/cupti/subscription.h"
#include "injector/recorder/recorder.h"

namespace tidemark::injector {

// Whether the call launches kernels, and is called back only while launches are timed.
bool is_timed_launch(uint32_t id) noexcept;
void time_launch(const cupti::CUpti_CallbackData& call) noexcept;

// Turns with kernels on and off, each of kLaunchesPerTurn launches; the first has them on.
inline constexpr uint32_t kTurns = 8;
inline constexpr uint32_t kLaunchesPerTurn = 64;

// False: CUPTI does not report launches. `enough` is run when a turn has its launches.
bool begin_launch_timing(const CuptiSubscription& cupti, Recorder::Task enough) noexcept;
void end_launch_timing(const CuptiSubscription& cupti) noexcept;

// `turn` from 0 on, when kernels are as it wants them; kTurns: between two of them.
void begin_turn(uint32_t turn) noexcept;
bool turn_is_full(uint32_t turn) noexcept;

// What a kernel costs, in ticks of the processor's counter. Nothing: launches waited for the card,
// for more than `longest_ticks` even with kernels off.
std::optional<uint64_t> launch_cost_ticks(uint64_t longest_ticks) noexcept;

}  // namespace tidemark::injector
