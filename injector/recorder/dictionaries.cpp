#include "injector/recorder/dictionaries.h"

#include <algorithm>
#include <cstring>

#include "injector/recorder/session.h"

namespace tidemark::injector {

namespace {

// Table sizes as powers of two. A table is filled up to three quarters.
constexpr uint32_t kStringsLog2 = 18;
constexpr uint32_t kModulesLog2 = 13;
constexpr uint32_t kFramesLog2 = 19;
constexpr uint32_t kNodesLog2 = 20;
constexpr uint32_t kStacksLog2 = 19;

struct FrameWords {
  uint64_t words[4];
};

FrameWords pack(const FrameKey& key) {
  return {{key.offset, static_cast<uint64_t>(key.line),
           (static_cast<uint64_t>(key.function) << 32) | key.file,
           (static_cast<uint64_t>(key.module) << 32) | static_cast<uint64_t>(key.kind)}};
}

template <typename Row>
bool put_row(Session& session, const Row& row) {
  constexpr uint32_t bytes = ring::record_bytes(sizeof row);
  uint8_t* const content = begin_record(*thread_writer, &session, Table<Row>::kind, bytes);
  if (content == nullptr) return false;
  std::memcpy(content, &row, sizeof row);
  end_record(*thread_writer, bytes);
  return true;
}

uint32_t draw(std::atomic<uint32_t>& last) {
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

// An id of 0 after a record that did not fit was counted by the record; this counts a table that is
// full.
uint32_t counted(Session& session, BlockKind kind, uint32_t id, bool tried) {
  if (id == 0 && !tried) session.count_dropped(kind, 1);
  return id;
}

}  // namespace

bool Dictionaries::create() noexcept {
  return strings_.create(kStringsLog2) && modules_.create(kModulesLog2) &&
         frames_.create(kFramesLog2) && nodes_.create(kNodesLog2) && stacks_.create(kStacksLog2);
}

void Dictionaries::discard() noexcept {
  for (HashedIds* table : {&strings_, &modules_, &frames_, &nodes_, &stacks_}) table->clear();
}

void Dictionaries::unmap() noexcept {
  for (HashedIds* table : {&strings_, &modules_, &frames_, &nodes_, &stacks_}) table->unmap();
}

uint64_t Dictionaries::memory_bytes(const Session& session) const noexcept {
  const uint32_t strings =
      std::atomic_ref(session.arena.header().strings_used).load(std::memory_order_relaxed);
  const uint32_t nodes = next_node_.load(std::memory_order_relaxed);
  return strings_.touched_bytes(strings) +
         modules_.touched_bytes(next_module_.load(std::memory_order_relaxed)) +
         frames_.touched_bytes(next_frame_.load(std::memory_order_relaxed)) +
         nodes_.touched_bytes(nodes) + stacks_.touched_bytes(nodes);
}

uint32_t Dictionaries::put_string(Session& session, std::string_view text) noexcept {
  const uint64_t before = text_bytes_.fetch_add(text.size(), std::memory_order_relaxed);
  const uint32_t bytes = ring::record_bytes(sizeof(ring::StringHead) + text.size());
  uint8_t* content = nullptr;
  if (before + text.size() > kMaxTextBytes) {
    session.count_dropped(BlockKind::kStrings, 1);
  } else {
    content = begin_record(*thread_writer, &session, BlockKind::kStrings, bytes);
  }
  if (content == nullptr) {
    text_bytes_.fetch_sub(text.size(), std::memory_order_relaxed);
    return 0;
  }
  auto used = std::atomic_ref(session.arena.header().strings_used);
  const ring::StringHead head{used.fetch_add(1, std::memory_order_relaxed) + 1,
                              static_cast<uint32_t>(text.size())};
  std::memcpy(content, &head, sizeof head);
  std::copy(text.begin(), text.end(), content + sizeof head);
  end_record(*thread_writer, bytes);
  return head.id;
}

uint32_t Dictionaries::string(Session& session, std::string_view text) noexcept {
  const size_t longest =
      session.arena.chunk_bytes() - sizeof(ring::RecordHeader) - sizeof(ring::StringHead);
  text = text.substr(0, longest);
  bool tried = false;
  const uint32_t id = strings_.find_or_add(hash_bytes(text.data(), text.size()), [&] {
    tried = true;
    return put_string(session, text);
  });
  return counted(session, BlockKind::kStrings, id, tried);
}

uint32_t Dictionaries::module(Session& session, Module row) noexcept {
  const uint64_t words[] = {row.base, row.size_bytes,
                            (static_cast<uint64_t>(row.path) << 32) | row.build_id};
  bool tried = false;
  const uint32_t id = modules_.find_or_add(hash_bytes(words, sizeof words), [&] {
    tried = true;
    row.id = draw(next_module_);
    return put_row(session, row) ? row.id : 0;
  });
  return counted(session, BlockKind::kModules, id, tried);
}

uint32_t Dictionaries::frame(Session& session, const FrameKey& key) noexcept {
  const FrameWords words = pack(key);
  bool tried = false;
  const uint32_t id = frames_.find_or_add(hash_bytes(&words, sizeof words), [&] {
    tried = true;
    Frame row{};
    row.id = draw(next_frame_);
    row.function = key.function;
    row.file = key.file;
    row.module = key.module;
    row.line = key.line;
    row.offset = key.offset;
    row.kind = key.kind;
    return put_row(session, row) ? row.id : 0;
  });
  return counted(session, BlockKind::kFrames, id, tried);
}

uint32_t Dictionaries::node(Session& session, uint32_t parent, uint32_t frame,
                            uint32_t nn_module) noexcept {
  const uint64_t words[] = {(static_cast<uint64_t>(parent) << 32) | frame, nn_module};
  bool tried = false;
  const uint32_t id = nodes_.find_or_add(hash_bytes(words, sizeof words), [&] {
    tried = true;
    const Stack row{draw(next_node_), parent, frame, nn_module};
    return put_row(session, row) ? row.id : 0;
  });
  return counted(session, BlockKind::kStacks, id, tried);
}

uint32_t Dictionaries::stack(Session& session, std::span<const FrameKey> frames,
                             uint32_t nn_module) noexcept {
  frames = frames.first(std::min(frames.size(), kMaxStackFrames));
  if (frames.empty()) return 0;
  FrameWords words[kMaxStackFrames];
  std::transform(frames.begin(), frames.end(), words, pack);
  HashKey key = hash_bytes(words, frames.size() * sizeof words[0]);
  if (nn_module != 0) key = extended(key, nn_module);
  if (const uint32_t id = stacks_.find(key); id != 0) return id;

  uint32_t id = 0;
  for (size_t i = frames.size(); i > 0; --i) {
    const uint32_t frame_id = frame(session, frames[i - 1]);
    if (frame_id == 0) return 0;
    const uint32_t parent = id;
    id = node(session, parent, frame_id, 0);
    if (id == 0) return 0;
    if (i == 1 && nn_module != 0) {
      // If there is no space for the twin, the plain one remains.
      if (const uint32_t twin = node(session, parent, frame_id, nn_module); twin != 0) id = twin;
    }
  }
  // If the table is full, the stack is built again each time; its id is valid all the same.
  static_cast<void>(stacks_.find_or_add(key, [id] { return id; }));
  return id;
}

}  // namespace tidemark::injector
