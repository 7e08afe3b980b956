#pragma once

#include "optpipe/core/error.hpp"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <memory>
#include <typeinfo>

namespace optpipe::libtorch {

/// Decides what autograd stores in place of a saved tensor.
class tensor_saver {
public:
    virtual ~tensor_saver() = default;
    /// Makes the hooks for one saved tensor.
    [[nodiscard]] virtual std::unique_ptr<torch::autograd::SavedVariableHooks> hooks() = 0;
};

namespace detail {

/// The saver that is active in this thread. If null, autograd holds the tensors themselves.
inline thread_local tensor_saver* active_saver = nullptr;

/// An autograd engine that supplies saved-tensor hooks. LibTorch alone accepts only Python objects as hooks.
struct saving_engine final : torch::autograd::Engine {
    std::unique_ptr<torch::autograd::SavedVariableHooks> get_default_saved_variable_hooks() override {
        return active_saver ? active_saver->hooks() : nullptr;
    }
    /// Never destroyed, because the engine's threads may outlive `main`.
    static Engine& instance() {
        static auto& only = *new saving_engine;
        return only;
    }
};

} // namespace detail

/// Makes autograd use the active saver of `saving_scope`, in all threads of the process. Must be called by all code
/// that uses a `saving_scope`. Throws `error` if Python's engine is in use.
inline void install_saving_engine() {
    using torch::autograd::Engine;
    Engine& current = Engine::get_default_engine();
    if (typeid(current) == typeid(detail::saving_engine)) return;
    if (typeid(current) != typeid(Engine)) throw error{"autograd has an engine of its own here: is it Python's?"};
    torch::autograd::set_default_engine_stub(&detail::saving_engine::instance);
}

/// Makes autograd use the saver `by` in this thread while this object exists.
class saving_scope {
public:
    explicit saving_scope(tensor_saver* by) : outer_{detail::active_saver} { detail::active_saver = by; }
    ~saving_scope() { detail::active_saver = outer_; }
    saving_scope(const saving_scope&) = delete;
    saving_scope& operator=(const saving_scope&) = delete;

private:
    tensor_saver* outer_;
};

} // namespace optpipe::libtorch
