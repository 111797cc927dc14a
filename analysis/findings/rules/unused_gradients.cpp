#include "analysis/findings/rules.h"
namespace tidemark {
void find_unused_gradients(const Evidence&, std::vector<Finding>&) {}
}  // namespace tidemark
