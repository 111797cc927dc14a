// A transformer that trains with AdamW, written down as the trace that a recorder would write: the
// blocks come from the model of PyTorch's allocator. Every size follows from the shape, so that
// plans can be compared with the run of the changed program.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "analysis/load/trace_model.h"
#include "analysis/whatif/allocator/caching_allocator.h"
#include "collector/snapshot/name_writer.h"
#include "proto/write/trace_writer.h"
#include "tests/support/memory_file.h"

namespace tidemark::test {

struct TransformerShape {
  uint64_t layers = 4;
  uint64_t width = 320;
  uint64_t heads = 8;
  uint64_t words = 3000;
  uint64_t batch = 6;
  uint64_t seq = 160;
  bool matrices = false;        // attention without a fused kernel
  bool half_products = false;   // of them in half the bytes of softmax, as under autocast
  bool weighs_tokens = false;   // by a softmax of each number over the tokens
  uint64_t number_bytes = 4;    // of weights and activations
  bool plain_layers = false;    // of a normalization and a product alone
  bool ends_with_norm = false;  // each layer, so that statistics come last
  bool checkpoint = false;
  bool modules = true;           // the recorder knows the nn.Modules
  uint64_t workspace_fixed = 0;  // of each layer: fixed + per_token * tokens
  uint64_t workspace_per_token = 0;
  enum class Optimizer {
    kForeach,
    kFused,
    kBytes,
    kSgd,
    kMomentum
  } optimizer = Optimizer::kForeach;
  bool autocast = false;   // weights of products are copied to 16 bits, and their gradients back
  int accumulate = 1;      // passes per step
  bool one_input = false;  // of each step, for all its passes
  int summed = 1;          // forward passes whose losses are added up before their backward passes
  int steps = 3;           // 0: a validation alone
  uint64_t validation_batch = 0;       // after each step but the first; 0: there is no validation
  bool validation_graphs = false;      // three batches whose graphs stay to the end of it
  bool keeps_masks = false;            // of heads and positions, one for each length
  std::vector<uint64_t> lengths;       // of the steps, instead of `seq`
  std::vector<uint64_t> batches;       // of the steps, instead of `batch`
  uint64_t sample_bytes = 0;           // of a result that has no sequence, per sample
  uint64_t position_bytes = 0;         // of a result of each position on its own, per sample
  bool head_bias = false;              // whose gradient is a sum over all tokens
  uint64_t data_bytes = 0;             // of a data set that the program keeps on the card
  bool frees_data = false;             // after the last step
  uint64_t prepared_bytes = 0;         // that it needs for a moment before
  std::string layer_name = "layers.";  // before the number of a layer
  std::string kernel;                  // the name of one; empty: none was recorded
  std::vector<std::string> kernels;    // more of them
  uint64_t card = uint64_t{16} << 30;
};

class TransformerRun : private SegmentAddresses {
 public:
  explicit TransformerRun(const TransformerShape& shape, uint64_t capacity = 0)
      : s_(shape),
        writer_(sink_),
        names_(writer_),
        allocator_({}, AllocatorLimits::of(0, capacity, shape.card), *this) {
    writer_.begin_process(1);
    Process p{};
    p.pid = 1;
    p.rank = -1;
    p.source = Source::kCapture;
    writer_.append(p);
    Device d{};
    d.total_bytes = shape.card;
    d.name = names_.string("NVIDIA H200");
    writer_.append(d);
    setting("torch", "2.11.0");
    train();
    if (!s_.kernel.empty()) s_.kernels.push_back(s_.kernel);
    for (const std::string& kernel : s_.kernels) {
      Kernel k{};
      k.start_ns = now_;
      k.duration_ns = 1000;
      k.name = names_.string(kernel);
      writer_.append(k);
    }
    writer_.finish();
    readers_.push_back(std::move(*open_bytes_as_trace(sink_.bytes)));
    model_ = std::move(*load_trace(readers_));
  }

  const TraceModel& model() const { return model_; }
  // The trace itself.
  const std::vector<uint8_t>& bytes() const { return sink_.bytes; }
  const ProcessModel& process() const { return model_.processes.front(); }
  uint64_t reserved_peak() const { return allocator_.peak().reserved; }
  uint64_t allocated_peak() const { return allocator_.allocated_peak(); }
  bool ran_out() const { return ran_out_; }

 private:
  using Block = uint32_t;
  struct Parameter {
    uint64_t bytes;
    std::string module;
  };
  // What an operation keeps for its backward pass, and what that allocates.
  struct Operation {
    std::string node;
    std::string module;
    std::vector<Block> saved;
    std::vector<uint64_t> gradients_of_inputs;
    std::vector<size_t> parameters;
  };

  uint64_t allocate(uint64_t bytes) override {
    const uint64_t address = addresses_.allocate(bytes);
    event(FrameworkAction::kSegmentAlloc, address, bytes, 0);
    return address;
  }
  void free(uint64_t address, uint64_t bytes) override {
    addresses_.free(address, bytes);
    event(FrameworkAction::kSegmentFree, address, bytes, 0);
  }
  uint64_t reserve(uint64_t bytes) override { return addresses_.reserve(bytes); }

  void setting(std::string_view key, std::string_view value) {
    Setting row{};
    row.key = names_.string(key);
    row.value = names_.string(value);
    row.scope = SettingScope::kTool;
    writer_.append(row);
  }

  void event(FrameworkAction action, uint64_t address, uint64_t bytes, uint32_t stack) {
    FrameworkEvent e{};
    e.time_ns = now_ += 1000;
    e.action = action;
    e.address = address;
    e.size_bytes = bytes;
    e.stack = stack;
    if (action == FrameworkAction::kAlloc) e.block_bytes = allocator_.block_bytes_of(last_);
    writer_.append(e);
  }

  // Innermost first: "function file:line", or the name of an autograd node.
  uint32_t stack(const std::vector<std::string>& frames, const std::string& module) {
    uint32_t id = 0;
    for (auto text = frames.rbegin(); text != frames.rend(); ++text) {
      Frame f{};
      const size_t space = text->find(' ');
      f.function = names_.string(text->substr(0, space));
      f.kind = FrameKind::kAutograd;
      if (space != text->npos) {
        const size_t colon = text->rfind(':');
        f.file = names_.string(text->substr(space + 1, colon - space - 1));
        f.line = std::stoll(text->substr(colon + 1));
        f.kind = FrameKind::kPython;
      }
      id = node(id, names_.frame(f), 0);
    }
    if (module.empty() || !s_.modules) return id;
    return node(parent_of_[id], frame_of_[id], nn_module(module));
  }
  uint32_t node(uint32_t parent, uint32_t frame, uint32_t nn_module) {
    const auto [at, fresh] = stacks_.try_emplace({parent, frame, nn_module}, stacks_.size() + 1);
    if (fresh) {
      parent_of_[at->second] = parent;
      frame_of_[at->second] = frame;
      writer_.append(Stack{at->second, parent, frame, nn_module});
    }
    return at->second;
  }
  uint32_t nn_module(const std::string& path) {
    const auto [at, fresh] = modules_.try_emplace(path, modules_.size() + 2);
    if (modules_.size() == 1 && fresh) writer_.append(NnModule{1, 0, names_.string("Model"), 1});
    if (fresh) writer_.append(NnModule{at->second, names_.string(path), names_.string("Part"), 1});
    return at->second;
  }

  Block alloc(uint64_t bytes, uint32_t stack) {
    last_ = ++blocks_;
    if (ran_out_) return last_;
    if (!allocator_.allocate(last_, bytes, 0, 0)) {
      ran_out_ = true;
      event(FrameworkAction::kOutOfMemory, 0, bytes, stack);
      return last_;
    }
    sizes_[last_] = bytes;
    event(FrameworkAction::kAlloc, allocator_.address_of(last_), bytes, stack);
    return last_;
  }
  void free(Block block) {
    if (ran_out_) return;
    const uint64_t address = allocator_.address_of(block);
    event(FrameworkAction::kFreeRequested, address, sizes_[block], 0);
    event(FrameworkAction::kFreeCompleted, address, sizes_[block], 0);
    allocator_.complete(block);
  }

  uint32_t in_forward(const std::string& call, const std::string& module) {
    if (recomputes_) {
      return stack(
          {call, "_call_impl torch/nn/modules/module.py:1",
           "recompute_fn torch/utils/checkpoint.py:60", "unpack_hook torch/utils/checkpoint.py:70"},
          module);
    }
    if (validates_) {
      return stack({call, "_call_impl torch/nn/modules/module.py:1", "evaluate train.py:30",
                    "train train.py:15"},
                   module);
    }
    return stack({call, "_call_impl torch/nn/modules/module.py:1", "train train.py:10"}, module);
  }
  uint32_t in_optimizer(const std::string& function) {
    return stack({function + " torch/optim/adamw.py:5", "step torch/optim/optimizer.py:9",
                  "train train.py:12"},
                 "");
  }

  void add_parameter(uint64_t numbers, const std::string& module) {
    const uint64_t bytes = numbers * s_.number_bytes;
    const Block block =
        alloc(bytes, stack({"_apply torch/nn/modules/module.py:900", "make train.py:2"}, ""));
    TensorTag tag{};
    tag.time_ns = now_ += 1000;
    tag.address = allocator_.address_of(block);
    tag.category = Category::kParameter;
    if (s_.modules) tag.nn_module = nn_module(module);
    writer_.append(tag);
    parameters_.push_back({bytes, module});
  }

  std::string part(uint64_t layer, const std::string& name) const {
    return s_.layer_name + std::to_string(layer) + "." + name;
  }

  void train() {
    const uint64_t d = s_.width;
    const Block data =
        s_.data_bytes == 0 ? 0 : alloc(s_.data_bytes, stack({"load train.py:1"}, ""));
    if (s_.prepared_bytes != 0) free(alloc(s_.prepared_bytes, stack({"load train.py:1"}, "")));
    add_parameter(s_.words * d, "embed");
    for (uint64_t i = 0; i < s_.layers; ++i) {
      add_parameter(d, part(i, "norm"));
      add_parameter(3 * d * d, part(i, "qkv"));
      add_parameter(4 * d * d, part(i, "up"));
      add_parameter(4 * d * d, part(i, "down"));
    }
    add_parameter(s_.words * d, "head");
    if (s_.head_bias) add_parameter(s_.words, "head");
    for (int step = 0; step < s_.steps && !ran_out_; ++step) {
      if (!s_.lengths.empty()) s_.seq = s_.lengths.at(static_cast<size_t>(step));
      if (!s_.batches.empty()) s_.batch = s_.batches.at(static_cast<size_t>(step));
      train_step();
      if (s_.validation_batch != 0 && step > 0 && !ran_out_) validate();
    }
    if (s_.steps == 0 && s_.validation_batch != 0) validate();
    if (s_.frees_data && data != 0) free(data);
  }

  uint64_t tokens() const { return s_.batch * s_.seq; }
  uint64_t hidden() const { return tokens() * s_.width * s_.number_bytes; }
  uint64_t matrix() const { return s_.batch * s_.heads * s_.seq * s_.seq * s_.number_bytes; }

  // The forward pass of a layer: its operations in order, the last of which has the result.
  std::vector<Operation> layer(uint64_t i, bool keep, Block& result) {
    const uint64_t h = hidden();
    const size_t first = 1 + 4 * i;
    std::vector<Operation> made;
    Block before = 0;  // without a graph, freed after its use
    Block before_that = 0;
    const auto operation = [&](const char* node, const char* name, const char* call,
                               std::vector<uint64_t> sizes, std::vector<uint64_t> inputs,
                               std::vector<size_t> parameters) {
      Operation o{node, part(i, name), {}, std::move(inputs), std::move(parameters)};
      std::vector<Block> copies;
      for (const size_t p : o.parameters) {
        if (s_.autocast && o.node == "AddmmBackward0") {
          copies.push_back(alloc(parameters_[p].bytes / 2, in_forward(call, o.module)));
        }
      }
      for (const uint64_t bytes : sizes)
        o.saved.push_back(alloc(bytes, in_forward(call, o.module)));
      o.saved.insert(o.saved.end(), copies.begin(), copies.end());
      if (!keep) {
        if (before_that != 0) free(before_that);
        before_that = before;
        before = o.saved.front();
        for (size_t k = 1; k < o.saved.size(); ++k) free(o.saved[k]);
      }
      made.push_back(std::move(o));
    };
    operation("NativeLayerNormBackward0", "norm", "layer_norm torch/nn/functional.py:2",
              {h, 4 * tokens()}, {h}, {first});
    const auto end = [&] {
      result = made.back().saved.front();
      if (!keep && before_that != 0) free(before_that);
      return std::move(made);
    };
    if (s_.plain_layers) {
      operation("AddmmBackward0", "down", "forward torch/nn/modules/linear.py:3", {h}, {h}, {});
      return end();
    }
    operation("AddmmBackward0", "qkv", "forward torch/nn/modules/linear.py:3", {3 * h}, {h},
              {first + 1});
    if (s_.workspace_fixed != 0) {
      free(alloc(s_.workspace_fixed + s_.workspace_per_token * tokens(),
                 in_forward("attend model.py:30", part(i, "attention"))));
    }
    if (s_.matrices) {
      const uint64_t product = s_.half_products ? matrix() / 2 : matrix();
      operation("BmmBackward0", "attention", "forward model.py:20", {product}, {2 * h}, {});
      operation("SoftmaxBackward0", "attention", "forward model.py:21", {matrix()}, {matrix()}, {});
      operation("BmmBackward0", "attention", "forward model.py:22", {h}, {product, h}, {});
    } else {
      operation("FlashBackward0", "attention", "forward model.py:23", {h}, {3 * h}, {});
    }
    if (s_.weighs_tokens) {
      operation("SoftmaxBackward0", "attention", "forward model.py:60", {h}, {h}, {});
    }
    operation("AddmmBackward0", "up", "forward torch/nn/modules/linear.py:3", {4 * h}, {h},
              {first + 2});
    operation("GeluBackward0", "act", "forward torch/nn/modules/activation.py:4", {4 * h}, {4 * h},
              {});
    operation("AddmmBackward0", "down", "forward torch/nn/modules/linear.py:3", {h}, {4 * h},
              {first + 3});
    if (s_.ends_with_norm) {
      operation("NativeLayerNormBackward0", "after", "layer_norm torch/nn/functional.py:2",
                {h, 4 * tokens()}, {h}, {});
    }
    return end();
  }

  void backward(const Operation& o, bool free_result) {
    std::vector<Block> now;
    const uint32_t at = stack({o.node}, o.module);
    for (const uint64_t bytes : o.gradients_of_inputs) now.push_back(alloc(bytes, at));
    for (const size_t p : o.parameters) gradient(p, o, at);
    if (o.parameters.size() > 1) sum_over_tokens(parameters_[o.parameters.back()].bytes, at);
    for (size_t k = free_result ? 0 : 1; k < o.saved.size(); ++k) free(o.saved[k]);
    for (const Block b : passed_) free(b);
    passed_ = now;
  }

  // What a reduction allocates on a card that runs 2112 blocks of 128 threads.
  void sum_over_tokens(uint64_t result, uint32_t at) {
    const uint64_t outputs = result / s_.number_bytes;
    const uint64_t grid = (outputs + 127) / 128;
    const uint64_t rows = (tokens() + 3) / 4;
    const uint64_t blocks = std::max(std::min((rows + 15) / 16, (2112 + grid - 1) / grid),  //
                                     (rows + 255) / 256);
    if (blocks == 1) return;
    const Block buffer = alloc(4 * outputs * 128 * blocks, at);
    const Block semaphores = alloc(4 * grid, at);
    free(semaphores);
    free(buffer);
  }

  void gradient(size_t parameter, const Operation& o, uint32_t at) {
    const uint64_t bytes = parameters_[parameter].bytes;
    Block half = 0;
    if (s_.autocast && o.node == "AddmmBackward0") {
      half = alloc(bytes / 2, at);
      at = stack({"ToCopyBackward0"}, o.module);
    }
    const Block whole = alloc(bytes, at);
    if (half != 0) free(half);
    if (adds_) {
      free(whole);
    } else {
      gradients_.push_back(whole);
    }
  }

  void train_step() {
    const auto passes = static_cast<uint64_t>(s_.accumulate);
    const Block whole =
        s_.one_input ? alloc(passes * tokens() * 8, stack({"to_device train.py:8"}, "")) : 0;
    for (int i = 0; i < s_.accumulate; ++i) {
      adds_ = i != 0;
      pass();
    }
    if (whole != 0) free(whole);
    optimize();
    for (const Block g : gradients_) free(g);
    gradients_.clear();
  }

  void pass() {
    std::vector<Graph> graphs;
    for (int i = 0; i < s_.summed; ++i) graphs.push_back(forward());
    for (; !graphs.empty(); graphs.pop_back()) backward(graphs.back());
  }

  // A forward pass with its graph.
  struct Graph {
    Block input = 0;
    Operation embed{"EmbeddingBackward0", "embed", {}, {}, {0}};
    std::vector<std::vector<Operation>> layers;
    std::vector<Block> results;
    Operation head{"AddmmBackward0", "head", {}, {}, {}};
    Operation loss{"LogSoftmaxBackward0", "", {}, {}, {}};
    Operation pool{"MeanBackward0", "", {}, {}, {}};
  };

  Block input() {
    return alloc(
        tokens() * 8,
        validates_
            ? stack({"to_device train.py:8", "evaluate train.py:29", "train train.py:15"}, "")
            : stack({"to_device train.py:8"}, ""));
  }

  Graph forward() {
    Graph g;
    if (!s_.one_input) g.input = input();
    g.embed.saved = {alloc(hidden(), in_forward("embedding torch/nn/functional.py:1", "embed"))};
    if (s_.keeps_masks && masks_.insert(s_.seq).second) {
      alloc(2 * s_.heads * s_.seq * s_.seq, in_forward("forward model.py:50", "bias"));
    }
    for (uint64_t i = 0; i < s_.layers; ++i) {
      Block result = 0;
      g.layers.push_back(layer(i, !s_.checkpoint, result));
      g.results.push_back(result);
    }
    const uint64_t logits = tokens() * s_.words * s_.number_bytes;
    g.head.gradients_of_inputs = {hidden()};
    g.head.parameters = {1 + 4 * s_.layers};
    if (s_.head_bias) g.head.parameters.push_back(2 + 4 * s_.layers);
    g.head.saved = {alloc(logits, in_forward("forward torch/nn/modules/linear.py:3", "head"))};
    g.loss.gradients_of_inputs = {logits};
    g.loss.saved = {alloc(logits, in_forward("cross_entropy torch/nn/functional.py:9", ""))};
    if (s_.sample_bytes != 0) {
      g.pool.saved = {alloc(s_.batch * s_.sample_bytes, in_forward("pool model.py:40", ""))};
    }
    for (uint64_t i = 0; s_.position_bytes != 0 && i < s_.seq; ++i) {
      g.pool.saved.push_back(
          alloc(s_.batch * s_.position_bytes, in_forward("step model.py:50", "")));
    }
    return g;
  }

  void validate() {
    const uint64_t batch = std::exchange(s_.batch, s_.validation_batch);
    validates_ = true;
    if (s_.validation_graphs) {
      std::vector<Graph> graphs;
      for (int i = 0; i < 3; ++i) graphs.push_back(forward());
      for (const Graph& g : graphs) free_graph(g);
    } else {
      const Block words = input();
      Block x = alloc(hidden(), in_forward("embedding torch/nn/functional.py:1", "embed"));
      for (uint64_t i = 0; i < s_.layers; ++i) {
        Block result = 0;
        layer(i, false, result);
        free(x);
        x = result;
      }
      const Block logits = alloc(tokens() * s_.words * s_.number_bytes,
                                 in_forward("forward torch/nn/modules/linear.py:3", "head"));
      free(logits);
      free(x);
      free(words);
    }
    validates_ = false;
    s_.batch = batch;
  }

  void free_graph(const Graph& g) {
    const auto free_saved = [&](const Operation& o) {
      for (const Block b : o.saved) free(b);
    };
    free_saved(g.loss);
    free_saved(g.pool);
    free_saved(g.head);
    for (size_t i = 0; i < g.layers.size(); ++i) {
      if (s_.checkpoint) free(g.results[i]);
      for (const Operation& o : g.layers[i]) {
        if (!s_.checkpoint) free_saved(o);
      }
    }
    free_saved(g.embed);
    if (g.input != 0) free(g.input);
  }

  void backward(Graph& g) {
    auto& [input, embed, layers, results, head, loss, pool] = g;
    backward(loss, true);
    backward(pool, true);
    backward(head, true);
    for (uint64_t i = s_.layers; i-- > 0;) {
      if (s_.checkpoint) {
        Block again = 0;
        recomputes_ = true;
        layers[i] = layer(i, true, again);
        recomputes_ = false;
        free(again);  // recomputation stops before the last operation
        layers[i].back().saved.clear();
      }
      for (size_t k = layers[i].size(); k-- > 0;) {
        const bool last = k + 1 == layers[i].size();
        if (layers[i][k].saved.empty()) layers[i][k].saved.push_back(results[i]);
        backward(layers[i][k], true);
        (void)last;
      }
    }
    backward(embed, true);
    for (const Block b : passed_) free(b);
    passed_.clear();
    if (input != 0) free(input);
  }

  void optimize() {
    using Optimizer = TransformerShape::Optimizer;
    for (const MarkPhase phase : {MarkPhase::kBegin, MarkPhase::kEnd}) {
      if (phase == MarkPhase::kEnd) update();
      Mark m{};
      m.time_ns = now_ += 1000;
      m.name = names_.string("Optimizer.step#AdamW.step");
      m.phase = phase;
      m.kind = MarkKind::kAnnotation;
      writer_.append(m);
    }
    has_states_ = s_.optimizer != Optimizer::kSgd;
  }
  void update() {
    using Optimizer = TransformerShape::Optimizer;
    const int states = s_.optimizer == Optimizer::kSgd        ? 0
                       : s_.optimizer == Optimizer::kMomentum ? 1
                                                              : 2;
    for (const Parameter& p : parameters_) {
      for (int i = 0; i < states && !has_states_; ++i) {
        const uint64_t numbers = p.bytes / s_.number_bytes;
        const bool bytes = s_.optimizer == Optimizer::kBytes && numbers >= 4096;
        alloc(bytes                               ? numbers + 4 * ((numbers + 255) / 256)
              : s_.optimizer == Optimizer::kBytes ? 4 * numbers
                                                  : p.bytes,
              in_optimizer("_init_group"));
      }
    }
    if (s_.optimizer != Optimizer::kForeach) return;
    std::vector<Block> temporaries;
    for (const Parameter& p : parameters_) {
      temporaries.push_back(alloc(p.bytes, in_optimizer("_multi_tensor_adamw")));
    }
    for (const Block b : temporaries) free(b);
  }

  TransformerShape s_;
  MemorySink sink_;
  TraceWriter writer_;
  NameWriter names_;
  DriverAddresses addresses_;
  CachingAllocator allocator_;
  std::map<std::tuple<uint32_t, uint32_t, uint32_t>, uint32_t> stacks_;
  std::map<uint32_t, uint32_t> parent_of_;
  std::map<uint32_t, uint32_t> frame_of_;
  std::map<std::string, uint32_t> modules_;
  std::map<Block, uint64_t> sizes_;
  std::vector<Parameter> parameters_;
  std::vector<Block> gradients_;
  std::vector<Block> passed_;  // gradients of the operation before
  Block blocks_ = 0;
  Block last_ = 0;
  int64_t now_ = 1'700'000'000'000'000'000;
  bool has_states_ = false;
  bool adds_ = false;  // to gradients of an earlier pass
  bool ran_out_ = false;
  bool validates_ = false;
  bool recomputes_ = false;
  std::set<uint64_t> masks_;  // lengths that have one
  std::vector<TraceReader> readers_;
  TraceModel model_;
};

}  // namespace tidemark::test
