// Which pickle opcodes are refused, and the names of all, for error messages.
// Source: Lib/pickle.py and Lib/pickletools.py of CPython 3.11; 3.14 adds none.
#pragma once

#include <cstdint>

#include "proto/pickle_opcodes.h"

namespace tidemark::pickle_op {

// An opcode that is recognised only to be refused.
struct RefusedOpcode {
  uint8_t code;
  const char* name;
  const char* why;  // continues "NAME at byte N ..."
};

inline constexpr const char* kRunsCode = "could run code; a memory snapshot never needs it";
inline constexpr const char* kIsText =
    "is a text opcode of pickle protocol 0, which is not supported; save with protocol 2 or later";
inline constexpr const char* kOutOfBand =
    "needs a buffer outside the file; a memory snapshot never needs it";
inline constexpr const char* kMakesSet = "makes a set; a memory snapshot never needs it";

inline constexpr RefusedOpcode kRefused[] = {
    {'c', "GLOBAL", kRunsCode},
    {0x93, "STACK_GLOBAL", kRunsCode},
    {'R', "REDUCE", kRunsCode},
    {'b', "BUILD", kRunsCode},
    {0x81, "NEWOBJ", kRunsCode},
    {0x92, "NEWOBJ_EX", kRunsCode},
    {'i', "INST", kRunsCode},
    {'o', "OBJ", kRunsCode},
    {0x82, "EXT1", kRunsCode},
    {0x83, "EXT2", kRunsCode},
    {0x84, "EXT4", kRunsCode},
    {'P', "PERSID", kRunsCode},
    {'Q', "BINPERSID", kRunsCode},
    {0x97, "NEXT_BUFFER", kOutOfBand},
    {0x98, "READONLY_BUFFER", kOutOfBand},
    {0x8f, "EMPTY_SET", kMakesSet},
    {0x90, "ADDITEMS", kMakesSet},
    {0x91, "FROZENSET", kMakesSet},
    {'I', "INT", kIsText},
    {'L', "LONG", kIsText},
    {'F', "FLOAT", kIsText},
    {'S', "STRING", kIsText},
    {'V', "UNICODE", kIsText},
    {'g', "GET", kIsText},
    {'p', "PUT", kIsText},
};

// The name of an opcode that is read, for error sentences.
constexpr const char* name(uint8_t code) {
  switch (code) {
    case kProto:
      return "PROTO";
    case kFrame:
      return "FRAME";
    case kStop:
      return "STOP";
    case kMark:
      return "MARK";
    case kPop:
      return "POP";
    case kPopMark:
      return "POP_MARK";
    case kDup:
      return "DUP";
    case kNone:
      return "NONE";
    case kNewTrue:
      return "NEWTRUE";
    case kNewFalse:
      return "NEWFALSE";
    case kBinInt:
      return "BININT";
    case kBinInt1:
      return "BININT1";
    case kBinInt2:
      return "BININT2";
    case kLong1:
      return "LONG1";
    case kLong4:
      return "LONG4";
    case kBinFloat:
      return "BINFLOAT";
    case kShortBinUnicode:
      return "SHORT_BINUNICODE";
    case kBinUnicode:
      return "BINUNICODE";
    case kBinUnicode8:
      return "BINUNICODE8";
    case kShortBinString:
      return "SHORT_BINSTRING";
    case kBinString:
      return "BINSTRING";
    case kShortBinBytes:
      return "SHORT_BINBYTES";
    case kBinBytes:
      return "BINBYTES";
    case kBinBytes8:
      return "BINBYTES8";
    case kByteArray8:
      return "BYTEARRAY8";
    case kEmptyList:
      return "EMPTY_LIST";
    case kEmptyTuple:
      return "EMPTY_TUPLE";
    case kEmptyDict:
      return "EMPTY_DICT";
    case kAppend:
      return "APPEND";
    case kAppends:
      return "APPENDS";
    case kSetItem:
      return "SETITEM";
    case kSetItems:
      return "SETITEMS";
    case kList:
      return "LIST";
    case kDict:
      return "DICT";
    case kTuple:
      return "TUPLE";
    case kTuple1:
      return "TUPLE1";
    case kTuple2:
      return "TUPLE2";
    case kTuple3:
      return "TUPLE3";
    case kMemoize:
      return "MEMOIZE";
    case kBinPut:
      return "BINPUT";
    case kLongBinPut:
      return "LONG_BINPUT";
    case kBinGet:
      return "BINGET";
    case kLongBinGet:
      return "LONG_BINGET";
    default:
      return "opcode";
  }
}

}  // namespace tidemark::pickle_op
