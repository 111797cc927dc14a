// What the stack panel shows and how, and the controls that choose it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "viewer/model/stack/stack_index.h"
#include "viewer/model/stack/step_pair.h"
#include "viewer/model/trace/selection.h"
#include "viewer/panels/timeline/search_field.h"

namespace tidemark::view {

struct StackPanelOptions {
  StackBy by = StackBy::kBlock;
  BandOrder order = BandOrder::kBirth;
  bool by_event = false;  // on the x axis
  bool fit = false;       // the height to what is in view
  bool steps = false;     // one step against another

  // The steps to compare, by their places; none: those that differ most.
  std::optional<StepPair> pair = std::nullopt;

  static std::vector<std::string> ways();
  // A word of --panel: a kind of band, "life", "events", "fit", "steps". False: there is none.
  bool show_as(const std::string& way);
};

// `by`: the bands that are drawn. `pair`: the steps that are compared, once they are known.
void draw_stack_toolbar(const Model& model, Selection& selection, StackPanelOptions& options,
                        StackBy by, std::optional<StepPair>& pair, SearchField& search);

}  // namespace tidemark::view
