#include "viewer/app/draw_hash.h"

#include <cstring>

#include "proto/base/hash.h"

namespace tidemark::view {

namespace {

// Eight bytes at a time: a frame has about a megabyte.
void add(uint64_t& hash, const void* bytes, size_t count) {
  const auto* at = static_cast<const unsigned char*>(bytes);
  for (; count >= sizeof(uint64_t); at += sizeof(uint64_t), count -= sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, at, sizeof word);
    hash = hash_word(hash, word);
  }
  uint64_t rest = count;
  std::memcpy(&rest, at, count);
  hash = mix_bits(hash ^ rest);
}

}  // namespace

uint64_t hash_of(const ImDrawData& data) {
  uint64_t hash = 1;
  add(hash, &data.DisplaySize, sizeof data.DisplaySize);
  for (const ImDrawList* list : data.CmdLists) {
    add(hash, list->VtxBuffer.Data, static_cast<size_t>(list->VtxBuffer.size_in_bytes()));
    add(hash, list->IdxBuffer.Data, static_cast<size_t>(list->IdxBuffer.size_in_bytes()));
    for (const ImDrawCmd& command : list->CmdBuffer) {
      add(hash, &command.ClipRect, sizeof command.ClipRect);
      add(hash, &command.ElemCount, sizeof command.ElemCount);
      add(hash, &command.TextureId, sizeof command.TextureId);
    }
  }
  return hash;
}

}  // namespace tidemark::view
