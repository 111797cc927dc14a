// The opcodes of pickle protocols 0 to 5 that occur in plain data.
// Source: Lib/pickle.py and Lib/pickletools.py of CPython 3.11; 3.14 adds none.
#pragma once

#include <cstdint>

namespace tidemark::pickle_op {

enum Opcode : uint8_t {
  // Frames the stream.
  kProto = 0x80,
  kFrame = 0x95,
  kStop = '.',

  // Moves values on the stack.
  kMark = '(',
  kPop = '0',
  kPopMark = '1',
  kDup = '2',

  // Pushes a scalar.
  kNone = 'N',
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kLong1 = 0x8a,
  kLong4 = 0x8b,
  kBinFloat = 'G',

  // Pushes text or bytes.
  kShortBinUnicode = 0x8c,
  kBinUnicode = 'X',
  kBinUnicode8 = 0x8d,
  kShortBinString = 'U',
  kBinString = 'T',
  kShortBinBytes = 'C',
  kBinBytes = 'B',
  kBinBytes8 = 0x8e,
  kByteArray8 = 0x96,

  // Makes or fills a container.
  kEmptyList = ']',
  kEmptyTuple = ')',
  kEmptyDict = '}',
  kAppend = 'a',
  kAppends = 'e',
  kSetItem = 's',
  kSetItems = 'u',
  kList = 'l',
  kDict = 'd',
  kTuple = 't',
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,

  // Stores to and fetches from the memo.
  kMemoize = 0x94,
  kBinPut = 'q',
  kLongBinPut = 'r',
  kBinGet = 'h',
  kLongBinGet = 'j',
};

}  // namespace tidemark::pickle_op
