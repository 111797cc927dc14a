// The panels: their table, and what concerns all of them at once.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "viewer/panels/compare/compare_panel.h"
#include "viewer/panels/details/detail_panel.h"
#include "viewer/panels/details/moment_panel.h"
#include "viewer/panels/findings/findings_panel.h"
#include "viewer/panels/flame/flame_panel.h"
#include "viewer/panels/map/map_panel.h"
#include "viewer/panels/ranks/ranks_panel.h"
#include "viewer/panels/stack/stack_panel.h"
#include "viewer/panels/tables/tables_panel.h"
#include "viewer/panels/timeline/timeline_panel.h"

namespace tidemark::view {

struct Panels {
  TimelinePanel timeline;
  MapPanel map;
  FlamePanel flame;
  TablesPanel tables;
  MomentPanel moment;
  StackPanel stack;
  FindingsPanel findings{stack.indexes()};
  RanksPanel ranks;
  ComparePanel compare;
  DetailPanel detail;

  struct Entry {
    const char* id;  // for --panel
    const char* title;
    void (*draw)(Panels& panels, const Model& model, Selection& selection);
    // The words of show_as(); null: none.
    std::vector<std::string> (*ways)() = nullptr;
  };
  // In the order of the keys 1 to 9 and 0.
  static std::span<const Entry> entries();
  // "timeline, map, ...".
  static std::string names();
  // A line for each panel: its name, and the words that choose how it is drawn.
  static std::string names_and_ways();
  // Null: there is none of that name.
  static const Entry* find(std::string_view id);

  // A panel by its id. Words after colons choose how it shows its content: "map:age",
  // "flame:rows:bottom-up", "tables:kernels", "ranks:curves", "stack:category". Null: there is no
  // such panel or word.
  const Entry* choose(const std::string& panel, Selection& selection);

  // `wake` asks for a new frame, from any thread.
  void set_wake(const std::function<void()>& wake) {
    wake_ = wake;
    timeline.use_stack(stack.indexes(), wake);
    tables.set_wake(wake);
    flame.set_wake(wake);
    detail.set_wake(wake);
    stack.set_wake(wake);
    findings.set_wake(wake);
  }
  // A panel that was drawn since the frame began has more to compute: draw again soon. Those behind
  // other tabs go on when they are shown.
  bool unfinished() const { return unfinished_; }
  void begin_frame() { unfinished_ = false; }
  void note_drawn(bool unfinished) { unfinished_ = unfinished_ || unfinished; }
  // For pictures: a frame computes everything it shows, however long that takes.
  void be_patient() {
    ranks.patient = timeline.patient = compare.patient = flame.patient = true;
    stack.patient = findings.patient = true;
  }
  // Drops what is kept of a trace, but not the options. Some panels recognise a trace by its
  // address alone, and a later trace may get the same one.
  void forget_trace();

 private:
  bool show_as(const Entry& panel, Selection& selection, const std::string& way);

  std::function<void()> wake_;
  bool unfinished_ = false;
};

}  // namespace tidemark::view
