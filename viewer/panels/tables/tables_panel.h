// The live blocks at the cursor as tables: individually, by stack, by category, by nn.Module, by
// owner, by segment; the allocator's actions around it; and the kernels and collectives in view.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/insight/module_tree.h"
#include "viewer/model/background.h"
#include "viewer/model/tables/line_rows.h"
#include "viewer/model/tables/tables.h"
#include "viewer/model/trace/selection.h"
#include "viewer/panels/tables/actions_table.h"
#include "viewer/panels/tables/activity_tables_panel.h"
#include "viewer/widgets/scroll_to.h"

namespace tidemark::view {

class TablesPanel {
 public:
  static constexpr const char* kTitle = "Tables";

  void set_wake(const std::function<void()>& wake);

  void draw(const Model& model, Selection& selection);

  // How many rows the table in front has under the current filter.
  size_t rows_shown() const { return rows_shown_; }
  // Whether a table is still being sorted.
  bool busy() const;
  // Opens this table in the next frame: "Kernels".
  void show_table(const char* title) { wanted_ = title; }
  // The words of show_as().
  static std::vector<std::string> ways();
  // The same, by a name in lower case; "all-steps": the allocations that live through all steps.
  // False: there is no such table.
  bool show_as(std::string_view name);

 private:
  // What a table was made from. When any of it changes, the table is made again.
  struct Key {
    const Model* model = nullptr;
    uint64_t version = 0;
    std::string filter;
    SortBy sort;
    std::optional<AllSteps> through;
    std::set<std::string> opened;

    bool update(const Key& now);
  };
  // Rows point into the lane's allocations.
  struct AllocationRows {
    const Model* model = nullptr;
    uint32_t lane = 0;
    std::vector<uint32_t> rows;
    uint64_t bytes = 0;
    std::vector<CategoryRow> categories;
  };
  struct ModuleRows {
    const Model* model = nullptr;
    uint32_t lane = 0;
    std::vector<ModuleRow> rows;
  };
  struct StackRows {
    const Model* model = nullptr;
    uint32_t lane = 0;
    std::vector<LineRow> rows;
  };

  bool begin_tab(const char* title);
  bool refresh(Key& key, const Model& model, const Selection& selection,
               const std::optional<AllSteps>& through = std::nullopt,
               const std::set<std::string>& opened = {});
  void wish_allocations(const Model& model, Selection& selection, size_t blocks);
  // The events through which the allocations must live; none: those at the cursor are shown.
  std::optional<AllSteps> draw_lasting_choice(const Model& model, const Lane& lane);
  void draw_allocations(const Model& model, Selection& selection);
  void wish_stacks(const Model& model, Selection& selection);
  void draw_stacks(const Model& model, Selection& selection);
  void draw_line(const Model& model, Selection& selection, const LineRow& row);
  void draw_categories(const Model& model, Selection& selection);
  void draw_modules(const Model& model, Selection& selection);
  void draw_owners(const Model& model, Selection& selection);
  void draw_segments(const Model& model, Selection& selection);

  const char* wanted_ = nullptr;
  size_t rows_shown_ = 0;
  bool lasting_ = false;  // only allocations that live through all steps
  Key allocations_key_;
  Background<AllocationRows> allocations_;
  ScrollTo allocations_scroll_;
  Key stacks_key_;
  std::set<std::string> opened_;  // lines whose stacks are listed
  // For the background: it keeps its texts from one cursor to the next.
  std::shared_ptr<const FrameText> stack_names_;
  Background<StackRows> stacks_;
  Key categories_key_;
  std::vector<CategoryRow> categories_;
  Key modules_key_;
  Background<ModuleRows> modules_;
  Key owners_key_;
  std::vector<OwnerRow> owners_;
  Key segments_key_;
  std::vector<uint32_t> segments_;
  ActionsTable actions_;
  ActivityTables activity_;
};

}  // namespace tidemark::view
