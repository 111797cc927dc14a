#include "export/tables/sqlite_index_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace tidemark {

namespace {

template <size_t N>
struct Entry {
  int64_t values[N];
  int64_t id_and_nulls;  // the id, and below it a bit per column

  bool null(size_t i) const { return (id_and_nulls >> i & 1) != 0; }
  // NULL sorts before every number.
  bool operator<(const Entry& other) const {
    for (size_t i = 0; i < N; ++i) {
      if (values[i] != other.values[i]) return values[i] < other.values[i];
      if (null(i) != other.null(i)) return null(i);
    }
    return id_and_nulls < other.id_and_nulls;
  }
};

}  // namespace

SqliteIndexKeys::SqliteIndexKeys(SqlitePages& pages, std::vector<size_t> columns, bool in_row_order)
    : columns_(std::move(columns)), in_row_order_(in_row_order), index_(pages) {}

void SqliteIndexKeys::text(size_t place, std::string_view value) {
  auto& texts = texts_[place];
  auto known = texts.find(value);
  if (known == texts.end()) {
    known = texts.emplace(value, static_cast<int64_t>(texts.size())).first;
  }
  now_[place] = {known->second, false};
}

bool SqliteIndexKeys::before(const Keys& a, const Keys& b) const {
  for (size_t i = 0; i < columns_.size(); ++i) {
    if (a[i].null != b[i].null) return a[i].null;
    if (a[i].value != b[i].value) return a[i].value < b[i].value;
  }
  return false;
}

bool SqliteIndexKeys::end_row(int64_t id) {
  if (in_row_order_) {
    if (rows_ != 0 && before(now_, last_)) return false;
    write(now_, id);
    return true;
  }
  int64_t nulls = 0;
  for (size_t i = 0; i < columns_.size(); ++i) {
    waiting_.push_back(now_[i].value);
    nulls |= int64_t{now_[i].null} << i;
  }
  waiting_.push_back(id << kMostColumns | nulls);
  return true;
}

void SqliteIndexKeys::write(const Keys& keys, int64_t id) {
  record_.clear();
  bool is_new = rows_ == 0;
  for (size_t i = 0; i < columns_.size(); ++i) {
    is_new = is_new || keys[i].null != last_[i].null || keys[i].value != last_[i].value;
    distinct_[i] += is_new ? 1 : 0;
    if (keys[i].null) {
      record_.null();
    } else if (!by_place_[i].empty()) {
      record_.text(by_place_[i][static_cast<size_t>(keys[i].value)]);
    } else {
      record_.integer(keys[i].value);
    }
  }
  record_.integer(id);
  index_.add(record_.bytes());
  last_ = keys;
  ++rows_;
}

template <size_t N>
void SqliteIndexKeys::sort_and_write() {
  static_assert(sizeof(Entry<N>) == (N + 1) * sizeof(int64_t));
  auto* first = reinterpret_cast<Entry<N>*>(waiting_.data());
  auto* last = first + waiting_.size() / (N + 1);
  if (!std::is_sorted(first, last)) std::sort(first, last);
  for (const auto* e = first; e != last; ++e) {
    Keys keys{};
    for (size_t i = 0; i < N; ++i) {
      if (!e->null(i)) keys[i] = {e->values[i], false};
    }
    write(keys, e->id_and_nulls >> kMostColumns);
  }
}

uint32_t SqliteIndexKeys::finish() {
  for (size_t i = 0; i < columns_.size(); ++i) {
    // Maps texts from their order of arrival to their sorted order.
    std::vector<int64_t> place(texts_[i].size());
    for (const auto& [text, came] : texts_[i]) {
      place[static_cast<size_t>(came)] = static_cast<int64_t>(by_place_[i].size());
      by_place_[i].push_back(text);
    }
    if (place.empty()) continue;
    for (size_t at = i; at < waiting_.size(); at += columns_.size() + 1) {
      const bool null = (waiting_[at - i + columns_.size()] >> i & 1) != 0;
      if (!null) waiting_[at] = place[static_cast<size_t>(waiting_[at])];
    }
  }
  if (columns_.size() == 1) sort_and_write<1>();
  if (columns_.size() == 2) sort_and_write<2>();
  if (columns_.size() == 3) sort_and_write<3>();
  waiting_ = {};
  return index_.finish();
}

std::string SqliteIndexKeys::statistics() const {
  std::string text = fmt::format("{}", rows_);
  for (size_t i = 0; i < columns_.size(); ++i) {
    const uint64_t distinct = std::max<uint64_t>(distinct_[i], 1);
    text += fmt::format(" {}", std::max<uint64_t>((rows_ + distinct - 1) / distinct, 1));
  }
  return text;
}

}  // namespace tidemark
