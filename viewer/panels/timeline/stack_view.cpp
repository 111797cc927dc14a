#include "viewer/panels/timeline/stack_view.h"

#include <algorithm>
#include <cmath>

#include "viewer/widgets/theme.h"

namespace tidemark::view {

void StackView::update(const StackWish& wish, bool at_once) {
  work_.poll();
  if (wish == wish_) return;
  wish_ = wish;
  work_.wish([held = wish.model->weak_from_this().lock(), indexes = indexes_,
              wish] { return make_stack_picture(*indexes, wish); },
             at_once);
}

void StackView::forget() {
  wish_ = {};
  // What is being made is of the old trace.
  work_.wish([] { return nullptr; }, true);
}

float StackView::y(const PlotArea& area, double bytes) const {
  const StackPicture* p = picture();
  const double share =
      p == nullptr ? 0 : (bytes - p->bottom_bytes) / (p->top_bytes - p->bottom_bytes);
  return area.max.y - static_cast<float>(share) * (area.max.y - area.min.y);
}

void StackView::draw(const PlotArea& area) {
  const StackPicture* p = picture();
  if (p == nullptr) return;
  if (drawn_ != p) {
    drawn_ = p;
    pixels_.set(p->wish.width_px, p->wish.height_px, p->pixels);
  }
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  draw.PushClipRect(area.min, area.max, true);
  const bool there = p->wish.view.begin == area.view.begin && p->wish.view.end == area.view.end;
  pixels_.draw(draw, {there ? area.min.x : area.x(p->wish.view.begin), area.min.y},
               {there ? area.max.x : area.x(p->wish.view.end), area.max.y});
  draw.PopClipRect();
}

float StackView::x(const PlotArea& area, uint32_t column) const {
  const StackPicture& p = *picture();
  const float left = area.x(p.wish.view.begin);
  const float right = area.x(p.wish.view.end);
  const auto share =
      static_cast<float>(column) /
      static_cast<float>(p.wish.width_px * static_cast<int>(StackPicture::kPerPixel));
  return left + share * (right - left);
}

uint32_t StackView::column_at(const PlotArea& area, float at) const {
  const StackPicture& p = *picture();
  const float left = area.x(p.wish.view.begin);
  const float right = area.x(p.wish.view.end);
  return p.column_at(static_cast<double>((at - left) / (right - left)));
}

std::optional<StackView::Hit> StackView::at(const PlotArea& area, ImVec2 point) const {
  const StackPicture* p = picture();
  if (p == nullptr) return std::nullopt;
  const uint32_t column = column_at(area, point.x);
  if (column >= p->columns.count()) return std::nullopt;
  const double share = static_cast<double>((area.max.y - point.y) / (area.max.y - area.min.y));
  const double bytes = p->bottom_bytes + share * (p->top_bytes - p->bottom_bytes);
  if (bytes < 0) return std::nullopt;
  const uint32_t slice = p->columns.slice_at(column, static_cast<uint64_t>(bytes));
  if (slice == StackedColumns::kNothing) return std::nullopt;
  return Hit{p->columns.slice_bands[slice], column, p->columns.samples.events[column],
             p->columns.slice_ends[slice] - p->columns.begin_of(column, slice),
             p->columns.samples.bytes[column],
             static_cast<uint64_t>(bytes) - p->columns.begin_of(column, slice)};
}

uint32_t StackView::band_of(uint32_t block) {
  const StackPicture* p = picture();
  if (p == nullptr) return UINT32_MAX;
  if (found_in_ != p || found_block_ != block) {
    found_in_ = p;
    found_block_ = block;
    found_band_ = UINT32_MAX;
    for (uint32_t b = 0; b < p->columns.bands.size(); ++b) {
      const StackBand& band = p->columns.bands[b];
      if (band.kind == BandKind::kBlock && band.block == block) found_band_ = b;
    }
  }
  return found_band_;
}

const StackView::Outline& StackView::outline_of(uint32_t band) {
  const StackPicture* p = picture();
  for (const Outline& o : outlines_) {
    if (o.of == p && o.band == band) return o;
  }
  Outline& out = outlines_[next_outline_];
  next_outline_ = (next_outline_ + 1) % std::size(outlines_);
  out = {p, band, {}};
  const StackedColumns& columns = p->columns;
  const StackBand& of = columns.bands[band];
  const bool block = of.kind == BandKind::kBlock;
  const uint32_t first = block ? of.first_column : 0;
  const uint32_t last = block ? of.last_column + 1 : columns.count();
  for (uint32_t c = first; c < std::min(last, columns.count()); ++c) {
    const uint32_t slice = columns.slice_of(c, band);
    if (slice == StackedColumns::kNothing) continue;
    const uint64_t begin = columns.begin_of(c, slice);
    const uint64_t end = columns.slice_ends[slice];
    if (!out.pieces.empty() && out.pieces.back().last == c && out.pieces.back().begin == begin &&
        out.pieces.back().end == end) {
      ++out.pieces.back().last;
    } else {
      out.pieces.push_back({c, c + 1, begin, end});
    }
  }
  return out;
}

void StackView::outline(const PlotArea& area, uint32_t band, ImU32 colour, float thickness) {
  if (picture() == nullptr || band >= picture()->columns.bands.size()) return;
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  draw.PushClipRect(area.min, area.max, true);
  const std::vector<Piece>& pieces = outline_of(band).pieces;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const Piece& piece = pieces[i];
    const float left = x(area, piece.first);
    const float right = x(area, piece.last);
    const float top = y(area, static_cast<double>(piece.end));
    const float bottom = y(area, static_cast<double>(piece.begin));
    draw.AddLine({left, top}, {right, top}, colour, thickness);
    draw.AddLine({left, bottom}, {right, bottom}, colour, thickness);
    const bool joined = i > 0 && pieces[i - 1].last == piece.first;
    const Piece& before = pieces[joined ? i - 1 : i];
    // The steps between neighbours, and the ends.
    draw.AddLine({left, joined ? y(area, static_cast<double>(before.end)) : bottom}, {left, top},
                 colour, thickness);
    if (joined) {
      draw.AddLine({left, y(area, static_cast<double>(before.begin))}, {left, bottom}, colour,
                   thickness);
    }
    if (i + 1 == pieces.size() || pieces[i + 1].first != piece.last) {
      draw.AddLine({right, bottom}, {right, top}, colour, thickness);
    }
  }
  draw.PopClipRect();
}

}  // namespace tidemark::view
