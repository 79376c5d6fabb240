// A nondeterministic stack as the middle of a residual sublayer, whose maps have no biases.
//
// Legend: B sequences of T positions; d = size of a row of x. A row of what is projected has the logits of all transitions,
// and the pushed vector before its activation.
#pragma once

#include "nondeterministic_stack/cpu/whole_sequence.h"
#include "residual_sublayers/sequences.h"

struct StackSizes {
    int64_t batch, time, width;
    projected::Stack stack;

    int64_t projected_row() const { return padded_row(stack.outputs()); }
    int64_t reading_row() const { return padded_row(stack.reading()); }
    WeightSizes weights() const { return {width, stack.outputs(), stack.reading()}; }
};

template <class Number>
struct StackSublayer {
    StackSizes sizes;
    const Number *bottom;  // its vector before the sigmoid
    double *tables;        // those of each stack
    int64_t table_size;
    SequenceSublayer<Number> around;

    void forward(int64_t b, Number *y) const {
        around.forward(b, y, [&](int64_t length, const Number *own, Number *read) {
            projected::forward(sizes.stack, length, own, sizes.projected_row(), bottom, tables + b * table_size, read,
                               sizes.reading_row());
        });
    }
    void backward(int64_t b, const Number *grad_y, Number *grad_x, const Gradients<Number> &gradients,
                  Number *grad_bottom) const {
        auto backward = [&](int64_t length, const Number *own, const Number *cotangent, Number *grad) {
            projected::backward<Number>(sizes.stack, length, own, sizes.projected_row(), bottom, tables + b * table_size,
                                        cotangent, sizes.reading_row(), grad, grad_bottom);
        };
        around.backward(b, grad_y, grad_x, gradients, backward);
    }
};
