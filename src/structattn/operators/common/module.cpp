// The extension module with the CPU kernels of all operators.
#include <nanobind/nanobind.h>

#include "common/kernels.h"

NB_MODULE(STRUCTATTN_MODULE, module) {
    register_gaussian_attention(module);
#if __has_include("residual_sublayers/parts.h")  // the package `fast` can be left out
    register_decoder(module);
    register_residual_sublayers(module);
#endif
    register_softmax_attention(module);
    register_stack_pointer(module);
    register_superposition_stack(module);
    register_nondeterministic_stack(module);
    register_stratified_stack(module);
    register_stack_rnn(module);
}
