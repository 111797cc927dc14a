// The tables of kernels and of collectives: of the selected rank, in the visible time.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "viewer/model/background.h"
#include "viewer/model/tables/activity_tables.h"
#include "viewer/model/trace/selection.h"

namespace tidemark::view {

class ActivityTables {
 public:
  void set_wake(const std::function<void()>& wake);
  bool busy() const { return kernels_.busy() || collectives_.busy(); }
  // Call it once per frame.
  void poll() {
    kernels_.poll();
    collectives_.poll();
  }

  // Each returns how many rows it has.
  size_t draw_kernels(const Model& model, Selection& selection);
  size_t draw_collectives(const Model& model, Selection& selection);

 private:
  struct Key {
    const Model* model = nullptr;
    uint32_t process = 0;
    VisibleRange view;
    std::string filter;
    SortBy sort;
  };
  template <typename Row>
  struct Rows {
    const Model* model = nullptr;
    uint32_t process = 0;
    std::vector<Row> rows;
  };

  // True when the table must be made again.
  static bool update(Key& key, const Model& model, const Selection& selection);

  Key kernels_key_;
  Background<Rows<KernelRow>> kernels_;
  Key collectives_key_;
  Background<Rows<CollectiveRow>> collectives_;
};

}  // namespace tidemark::view
