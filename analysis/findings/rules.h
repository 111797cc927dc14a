// The rules of the diagnosis, one per finding id.
#pragma once

#include "analysis/findings/evidence.h"

namespace tidemark {

void find_capacity(const Evidence& evidence, std::vector<Finding>& out);
void find_fragmentation(const Evidence& evidence, std::vector<Finding>& out);
void find_rank_imbalance(const Evidence& evidence, std::vector<Finding>& out);
void find_device_imbalance(const Evidence& evidence, std::vector<Finding>& out);
void find_creep(const Evidence& evidence, std::vector<Finding>& out);
void find_nccl_overhead(const Evidence& evidence, std::vector<Finding>& out);
void find_stray_context(const Evidence& evidence, std::vector<Finding>& out);
void find_other_process(const Evidence& evidence, std::vector<Finding>& out);
void find_activation_peak(const Evidence& evidence, std::vector<Finding>& out);
void find_optimizer_state_spike(const Evidence& evidence, std::vector<Finding>& out);
void find_eval_keeps_graph(const Evidence& evidence, std::vector<Finding>& out);
void find_retained_graph(const Evidence& evidence, std::vector<Finding>& out);
void find_cache_thrash(const Evidence& evidence, std::vector<Finding>& out);
void find_memory_fraction(const Evidence& evidence, std::vector<Finding>& out);
void find_graph_private_pool(const Evidence& evidence, std::vector<Finding>& out);
void find_pinned_growth(const Evidence& evidence, std::vector<Finding>& out);
void find_sleep_leftover(const Evidence& evidence, std::vector<Finding>& out);
void find_kept_by_error(const Evidence& evidence, std::vector<Finding>& out);
void find_shape_variance(const Evidence& evidence, std::vector<Finding>& out);
void find_accumulated_graphs(const Evidence& evidence, std::vector<Finding>& out);
void find_unused_gradients(const Evidence& evidence, std::vector<Finding>& out);
void find_trained_base(const Evidence& evidence, std::vector<Finding>& out);
void find_checkpoint_kept(const Evidence& evidence, std::vector<Finding>& out);
void find_one_operation_peak(const Evidence& evidence, std::vector<Finding>& out);
void find_queued_inputs(const Evidence& evidence, std::vector<Finding>& out);
void find_joined_results(const Evidence& evidence, std::vector<Finding>& out);
void find_autocast_copies(const Evidence& evidence, std::vector<Finding>& out);
void find_stale_gradients(const Evidence& evidence, std::vector<Finding>& out);
void find_stream_pools(const Evidence& evidence, std::vector<Finding>& out);

// Runs every rule. Errors come first, then warnings; within each, the greatest saving first.
std::vector<Finding> diagnose(const Evidence& evidence);

// Sorts the findings of several parts of a job in the same way.
void sort_findings(std::vector<Finding>& findings);

// Writes the summary of a finding that names times of its evidence (other_process) for a recording
// that begins at `start_ns`. Others stay as they are.
void say_when(Finding& finding, int64_t start_ns);

// All finding ids.
std::vector<std::string> finding_ids();

}  // namespace tidemark
