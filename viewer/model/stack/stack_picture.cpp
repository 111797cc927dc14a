#include "viewer/model/stack/stack_picture.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

namespace tidemark::view {

namespace {

constexpr int kHatchPx = 6;

auto key_of(const StackWish& w) {
  return std::tie(w.model, w.lane, w.by, w.categories_known, w.order, w.hidden, w.view.begin,
                  w.view.end, w.offset, w.axis, w.width_px, w.height_px, w.fit, w.top_bytes, w.zoom,
                  w.bottom_share, w.colour_by, w.search, w.dark);
}

std::vector<double> edge_times(const StackWish& wish, uint32_t columns) {
  if (wish.axis != nullptr) {
    return EventAxis(*wish.axis, wish.axis_start_ns).edges(wish.view.begin, wish.view.end, columns);
  }
  std::vector<double> edges(size_t{columns} + 1);
  for (uint32_t i = 0; i <= columns; ++i) {
    edges[i] = wish.view.begin + wish.view.span() * (static_cast<double>(i) / columns);
  }
  return edges;
}

// Up to the end of the trace: nothing is known after it.
std::vector<uint32_t> edge_events(const StackWish& wish, uint32_t columns) {
  const AllocationHistory& memory = *wish.model->lanes[wish.lane].memory;
  const int64_t start = wish.model->trace.start_ns;
  std::vector<uint32_t> events;
  for (const double edge : edge_times(wish, columns)) {
    const double time = edge - wish.offset;
    if (!events.empty() && time > wish.model->span_ns()) {
      events.push_back(memory.event_count());
      break;
    }
    events.push_back(
        memory.first_event_not([&](int64_t t) { return static_cast<double>(t - start) < time; }));
  }
  return events;
}

uint32_t rgba(Rgb c, uint32_t alpha) {
  return uint32_t{c.r} | uint32_t{c.g} << 8 | uint32_t{c.b} << 16 | alpha << 24;
}

// The mean of two, weighted by how opaque they are.
uint32_t blend(uint32_t a, uint32_t b) {
  if (a == b) return a;
  const uint32_t alpha_a = a >> 24;
  const uint32_t alpha_b = b >> 24;
  const uint32_t both = alpha_a + alpha_b;
  if (both == 0) return 0;
  const auto mix = [&](int shift) {
    return (((a >> shift) & 255) * alpha_a + ((b >> shift) & 255) * alpha_b) / both << shift;
  };
  return mix(0) | mix(8) | mix(16) | (both / 2) << 24;
}

struct BandPaint {
  uint32_t fill = 0;
  uint32_t edge = 0;
  bool hatched = false;
  bool crossed = false;  // hatched both ways: the free part of a private pool
};

class Painter {
 public:
  Painter(const StackPicture& picture, std::vector<uint32_t>& pixels)
      : picture_(&picture),
        pixels_(&pixels),
        width_(static_cast<size_t>(picture.wish.width_px)),
        height_(static_cast<size_t>(picture.wish.height_px)) {}

  void paint() {
    choose_paints();
    const StackedColumns& columns = picture_->columns;
    constexpr uint32_t kPer = StackPicture::kPerPixel;
    std::vector<uint32_t> left(height_);
    std::vector<uint32_t> right(height_);
    for (uint32_t x = 0; x < width_ && x * kPer < columns.count(); ++x) {
      const uint32_t c = x * kPer;
      const bool two = c + 1 < columns.count();
      fill(c, x, left);
      const bool same = two && columns.samples.events[c] == columns.samples.events[c + 1];
      if (two && !same) fill(c + 1, x, right);
      const std::vector<uint32_t>& second = two && !same ? right : left;
      for (size_t y = 0; y < height_; ++y) {
        (*pixels_)[y * width_ + x] = blend(left[y], second[y]);
      }
    }
  }

 private:
  void choose_paints() {
    const StackIndex& index = *picture_->index;
    const AllocationColumns& blocks = index.memory().allocations;
    const std::vector<bool> lit = index.kinds_with(picture_->wish.search);
    // The rest of a group is lit if the text is in the stacks of all its kinds.
    std::vector<bool> group_lit(index.groups.count, true);
    for (size_t k = 0; k < index.groups.of_kind.size(); ++k) {
      if (!lit[k]) group_lit[index.groups.of_kind[k]] = false;
    }
    if (index.groups.of_kind.empty() && !picture_->wish.search.empty()) {
      group_lit.assign(index.groups.count, false);
    }
    paints_.reserve(picture_->columns.bands.size());
    for (const StackBand& band : picture_->columns.bands) {
      const Rgb colour = picture_->colour_of(band);
      const bool bright = band.kind == BandKind::kBlock   ? lit[blocks.kind(band.block)]
                          : band.group < group_lit.size() ? group_lit[band.group]
                                                          : picture_->wish.search.empty();
      const uint32_t alpha = bright ? 255 : 64;
      paints_.push_back({rgba(colour, alpha), rgba(shade(colour, -0.3), alpha),
                         band.kind == BandKind::kFree || band.kind == BandKind::kPending,
                         band.kind == BandKind::kFree && index.is_private(band.group)});
    }
  }

  // Rows from above for a height in bytes.
  size_t row(uint64_t bytes) const {
    const double share = (picture_->top_bytes - static_cast<double>(bytes)) /
                         (picture_->top_bytes - picture_->bottom_bytes);
    const double y = std::round(share * static_cast<double>(height_));
    return static_cast<size_t>(std::clamp(y, 0.0, static_cast<double>(height_)));
  }

  void fill(uint32_t column, uint32_t x, std::vector<uint32_t>& out) const {
    std::fill(out.begin(), out.end(), 0);
    const StackedColumns& c = picture_->columns;
    size_t below = row(c.base[column]);
    for (uint32_t k = c.starts[column]; k < c.starts[column + 1]; ++k) {
      const size_t above = row(c.slice_ends[k]);
      if (above == below) continue;
      const BandPaint& p = paints_[c.slice_bands[k]];
      if (p.hatched) {
        for (size_t y = above; y < below; ++y) {
          const bool line =
              (x + y) % kHatchPx < 2 || (p.crossed && (x + (height_ - y)) % kHatchPx < 2);
          out[y] = line ? p.fill : (p.fill & 0xFFFFFFU) | (p.fill >> 26) << 24;
        }
      } else {
        std::fill(out.begin() + static_cast<std::ptrdiff_t>(above),
                  out.begin() + static_cast<std::ptrdiff_t>(below), p.fill);
      }
      // A line between bands that are high enough for one.
      if (below - above >= 4) out[above] = p.edge;
      below = above;
    }
  }

  const StackPicture* picture_;
  std::vector<uint32_t>* pixels_;
  size_t width_;
  size_t height_;
  std::vector<BandPaint> paints_;
};

uint64_t highest_shown(const StackIndex& index, const ColumnSamples& samples,
                       const std::vector<bool>& hidden) {
  if (std::find(hidden.begin(), hidden.end(), true) == hidden.end()) {
    return samples.bytes.empty() ? 0
                                 : *std::max_element(samples.bytes.begin(), samples.bytes.end());
  }
  StackOptions options;
  options.blocks_alone = false;
  options.hidden = hidden;
  return stack_columns(index.memory(), *index.lives, index.groups, *index.totals, samples, options)
      .highest;
}

}  // namespace

bool operator==(const StackWish& a, const StackWish& b) {
  return key_of(a) == key_of(b);
}

uint32_t StackPicture::column_at(double share) const {
  const double at = share * wish.width_px * kPerPixel;
  if (at < 0 || at >= columns.count()) return columns.count();
  return static_cast<uint32_t>(at);
}

bool StackPicture::has_uncoloured() const {
  const auto is_rest = [](const StackBand& b) { return b.kind == BandKind::kRest; };
  return has_own_colours() && std::any_of(columns.bands.begin(), columns.bands.end(), is_rest);
}

std::optional<uint32_t> StackPicture::block_at(const StackBand& band, uint32_t event,
                                               uint64_t above) const {
  if (band.kind == BandKind::kBlock) return band.block;
  if (band.kind != BandKind::kRest || index->groups.are_segments()) return std::nullopt;
  return block_in_rest(index->memory(), *index->lives, index->groups, columns.options, band, event,
                       above);
}

Rgb StackPicture::colour_of(const StackBand& band) const {
  switch (band.kind) {
    case BandKind::kFree:
      return shade(index->colours[band.group], wish.dark ? -0.1 : 0.1);
    case BandKind::kPending:
      return Rgb{213, 94, 0};
    case BandKind::kOthers:
      return kUncoloured;
    case BandKind::kRest:
      if (has_own_colours()) return kUncoloured;
      // What is summed differs a little from what is drawn on its own.
      return index->groups.are_segments() ? index->colours[band.group]
                                          : shade(index->colours[band.group], -0.12);
    case BandKind::kBlock:
      break;
  }
  const AllocationHistory& memory = index->memory();
  if (index->by != StackBy::kBlock) return index->colours[band.group];
  const Allocation a = memory.allocations[band.block];
  switch (wish.colour_by) {
    case ColourBy::kCategory:
      return category_colour(a.category);
    case ColourBy::kStack:
      return stack_colour(a.stack);
    case ColourBy::kSize:
      return size_colour(a.block_bytes);
    case ColourBy::kAge: {  // how old it becomes
      const int64_t span = index->model->trace.end_ns - index->model->trace.start_ns;
      return age_colour(std::min(a.death_ns(), index->model->trace.end_ns) - a.birth_ns(), span);
    }
    case ColourBy::kModule:
      return stack_colour(index->model->process_of(lane()).nn_module_of(a));
    case ColourBy::kOwner:
      return owner_colour(
          lane().of_driver ? index->model->process_of(lane()).names.string(a.metadata) : "torch");
  }
  return {};
}

std::shared_ptr<const StackPicture> make_stack_picture(StackIndexes& indexes,
                                                       const StackWish& wish) {
  auto picture = std::make_shared<StackPicture>();
  picture->wish = wish;
  const LifeUnit life = wish.axis == nullptr ? LifeUnit::kTime : LifeUnit::kEvents;
  picture->index = indexes.get(*wish.model, wish.lane, wish.by, wish.categories_known, life);
  const StackIndex& index = *picture->index;
  const auto columns = static_cast<uint32_t>(wish.width_px) * StackPicture::kPerPixel;
  ColumnSamples samples =
      highest_in_columns(index.memory(), index.curve(), edge_events(wish, columns));
  double top = wish.top_bytes;
  if (wish.fit) {
    top = static_cast<double>(highest_shown(index, samples, wish.hidden)) * wish.top_bytes;
  }
  top = std::max(top, 1024.0);
  const double height = top / wish.zoom;
  picture->bottom_bytes = std::clamp(wish.bottom_share * top, 0.0, top - height);
  picture->top_bytes = picture->bottom_bytes + height;
  StackOptions options;
  options.least_bytes = static_cast<uint64_t>(std::max(1.0, height / wish.height_px));
  options.blocks_alone = !index.groups.are_segments();
  options.by_group = wish.by != StackBy::kBlock;
  options.pending = !index.groups.are_segments();
  options.order = wish.order;
  options.life = life;
  options.hidden = wish.hidden;
  options.bottom_bytes = static_cast<uint64_t>(picture->bottom_bytes);
  options.top_bytes = static_cast<uint64_t>(picture->top_bytes) + 1;
  picture->columns = stack_columns(index.memory(), *index.lives, index.groups, *index.totals,
                                   std::move(samples), options);
  picture->pixels.resize(static_cast<size_t>(wish.width_px) * static_cast<size_t>(wish.height_px));
  Painter(*picture, picture->pixels).paint();
  return picture;
}

}  // namespace tidemark::view
