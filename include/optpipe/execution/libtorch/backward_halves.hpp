#pragma once

#include "optpipe/execution/libtorch/stash.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace optpipe::libtorch {

using node_pointer = decltype(torch::autograd::Edge::function);

/// Describes where weight gradients branch off from the computation of the input's gradient. Each root without a path
/// to the input is also a branch.
struct weight_branches {
    struct branch {
        node_pointer at;
        tensors weights;
    };
    std::vector<branch> branches;
    /// Weights that are used in several places. Gradients of shared weights are computed together with the input's
    /// gradient.
    tensors shared;
};

namespace detail {

using torch::autograd::Edge;
using torch::autograd::edge_list;
using torch::autograd::Node;
using weights_by_node = std::map<Node*, at::Tensor>; // indexed by the node that accumulates the gradient

/// All nodes that can be reached from the roots. Each node comes after the nodes to which it leads.
inline std::vector<node_pointer> in_topological_order(const edge_list& roots) {
    std::vector<node_pointer> order;
    std::set<Node*> seen;
    std::vector<std::pair<node_pointer, bool>> waiting;
    for (const auto& root : roots)
        waiting.emplace_back(root.function, false);
    while (!waiting.empty()) {
        const auto [node, is_done] = waiting.back();
        waiting.pop_back();
        if (is_done) {
            order.push_back(node);
        } else if (node && seen.insert(node.get()).second) {
            waiting.emplace_back(node, true);
            for (const auto& next : node->next_edges())
                if (next.function && !seen.contains(next.function.get())) waiting.emplace_back(next.function, false);
        }
    }
    return order;
}

/// Finds the weights below each branch of `weight_branches`. Nodes must be visited in topological order.
class branch_search {
public:
    explicit branch_search(const Node* entry) : entry_{entry} {}

    void visit(const node_pointer& node) {
        if (leads_to_input(*node)) {
            to_input_.insert(node.get());
            if (node.get() != entry_) found_.emplace_back(node, aside_of(*node));
        } else if (const auto* leaf = dynamic_cast<const torch::autograd::AccumulateGrad*>(node.get())) {
            below_[node.get()] = {{node.get(), leaf->variable}};
        } else {
            below_[node.get()] = aside_of(*node);
        }
    }
    [[nodiscard]] weight_branches result(const edge_list& roots) {
        std::set<Node*> beside;
        for (const auto& root : roots)
            if (!to_input_.contains(root.function.get()) && beside.insert(root.function.get()).second)
                found_.emplace_back(root.function, below_.at(root.function.get()));
        std::map<Node*, int> uses;
        for (const auto& [node, weights] : found_)
            for (const auto& [leaf, weight] : weights)
                ++uses[leaf];
        weight_branches all;
        weights_by_node shared;
        for (const auto& [node, weights] : found_) {
            tensors once;
            for (const auto& [leaf, weight] : weights)
                if (uses.at(leaf) == 1)
                    once.push_back(weight);
                else
                    shared[leaf] = weight;
            if (!once.empty()) all.branches.push_back({node, std::move(once)});
        }
        for (const auto& [leaf, weight] : shared)
            all.shared.push_back(weight);
        return all;
    }

private:
    [[nodiscard]] bool leads_to_input(const Node& node) const {
        if (&node == entry_) return true;
        for (const auto& next : node.next_edges())
            if (next.function && to_input_.contains(next.function.get())) return true;
        return false;
    }
    [[nodiscard]] weights_by_node aside_of(const Node& node) const {
        weights_by_node all;
        for (const auto& next : node.next_edges())
            if (const auto below = below_.find(next.function.get()); below != below_.end())
                all.insert(below->second.begin(), below->second.end());
        return all;
    }

    const Node* entry_;
    std::set<const Node*> to_input_;
    std::map<const Node*, weights_by_node> below_;
    std::vector<std::pair<node_pointer, weights_by_node>> found_;
};

} // namespace detail

/// The weight branches of the graph between `roots` and the stage's input. `entry` is the node of the input.
[[nodiscard]] inline weight_branches branches_of(const torch::autograd::edge_list& roots,
                                                 const torch::autograd::Node* entry) {
    detail::branch_search search{entry};
    for (const auto& node : detail::in_topological_order(roots))
        search.visit(node);
    return search.result(roots);
}

/// The edge that leads to the accumulated gradient of a weight.
[[nodiscard]] inline torch::autograd::Edge edge_of_weight(const at::Tensor& weight) {
    return {torch::autograd::impl::grad_accumulator(weight), 0};
}
/// Adds to the gradient of a weight as autograd does.
inline void add_gradient(at::Tensor& weight, const at::Tensor& gradient) {
    const at::NoGradGuard without_graph;
    auto& sum = weight.mutable_grad();
    if (sum.defined())
        sum.add_(gradient);
    else
        sum = gradient.clone();
}

/// The first node of a stage's graph. A full backward runs this node, which stores the gradients of the inputs. A
/// backward for the input alone stops before this node. Unlike leaf tensors, the node passes the inputs on without
/// holding them.
struct stage_entry : torch::autograd::Function<stage_entry> {
    /// `anchor` is any tensor that requires a gradient. `gradients` must outlive the graph.
    static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context, const at::Tensor&,
                                                  tensors* gradients, const tensors& inputs) {
        context->saved_data["gradients"] = reinterpret_cast<std::intptr_t>(gradients);
        context->set_materialize_grads(false);
        torch::autograd::variable_list outputs;
        torch::autograd::variable_list not_differentiable;
        for (const auto& each : inputs) {
            outputs.push_back(each.variable_data());
            if (!each.is_floating_point()) not_differentiable.push_back(outputs.back());
        }
        context->mark_non_differentiable(not_differentiable);
        return outputs;
    }
    static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                   const torch::autograd::variable_list& gradients) {
        auto* const result =
            reinterpret_cast<tensors*>(static_cast<std::intptr_t>(context->saved_data.at("gradients").toInt()));
        *result = gradients;
        constexpr std::size_t arguments = 3;
        return torch::autograd::variable_list(arguments);
    }
};

} // namespace optpipe::libtorch
