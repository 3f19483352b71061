/* Where gradient $place of a step is taken, given those `found` before it, the last of which may be
   where the result goes. */
static void point_$place(const float *weights, const float *anchors, const float *const *found,
                         const double *number, const float *const *tensors, float *result,
                         int64_t columns) {
    $numbers
#pragma omp simd
    for (int64_t i = 0; i < columns; i++) {
        $loads
        $weights
        result[i] = $result;
    }
}
