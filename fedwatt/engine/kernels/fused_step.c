/* Weights `begin` to `end`; `gradients` begins with that of the first of them. */
static void ${name}_part(const float *restrict gradients, const float *restrict weights,
                         float *restrict result, const float *restrict anchors,
                         const double *restrict number, const float *const *restrict tensors,
                         int64_t begin, int64_t end) {
    $numbers
    $loops
}

void $name(const float *gradients, const float *weights, float *result, const float *anchors,
           const double *numbers, const float *const *tensors, int64_t rows, int64_t columns) {
    for (int64_t row = 0, begin = 0; row < rows; row++, begin += columns)
        ${name}_part(gradients + begin, weights, result, anchors, numbers + row * NUMBERS, tensors,
                     begin, begin + columns);
}

/* What stands for $loops, once or more: */
#pragma omp simd
    for (int64_t i = begin; i < end; i++) {
        const float gradient = gradients[i - begin], previous = result[i];
        const float weight = $read[i], anchor = anchors[i];
        $weights
        result[i] = $result;
    }
