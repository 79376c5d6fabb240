// The extension module with the CPU kernels of all operators.
#include <nanobind/nanobind.h>

#include "common/kernels.h"

NB_MODULE(STRUCTATTN_MODULE, module) {
    register_decoder_layers(module);
    register_gaussian_attention(module);
    register_linear(module);
#if __has_include("residual_sublayers/parts.h")  // the package `fast` can be left out
    register_residual_sublayers(module);
#endif
    register_softmax_attention(module);
    register_stack_pointer(module);
    register_superposition_stack(module);
    register_nondeterministic_stack(module);
    register_stratified_stack(module);
    register_stack_rnn(module);
    register_top_continuations(module);
}
