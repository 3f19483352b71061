/* Gradient of one MLP, as MLP.prepared in mlp.py has it.

   sizes: number of hidden layers, inputs, widths of the hidden layers. weights and gradient lie as
   the model's layout has them; work holds two blocks [batch, width] for each hidden layer. */
static void model_gradient(const float *weights, const float *windows, const float *labels,
                           const float *shares, int64_t batch, const int64_t *sizes,
                           float *gradient, float *work, sgemm_t *sgemm) {
    const int64_t layers = sizes[0], *width = sizes + 1;
    const float *inputs[layers + 1], *matrices[layers + 1];
    float *slopes[layers + 1], *errors[layers + 1];
    inputs[0] = windows;
    for (int64_t i = 0; i < layers; i++) {
        const int64_t in = width[i], out = width[i + 1];
        float *result = work;
        inputs[i + 1] = result;
        errors[i] = work + batch * out;
        work += 2 * batch * out;
        matrices[i] = weights;
        slopes[i] = gradient;
        for (int64_t b = 0; b < batch; b++)
            memcpy(result + b * out, weights + in * out, out * sizeof(float));
        multiply(sgemm, 'N', 'N', batch, out, in, inputs[i], in, weights, out, 1.0f, result, out);
        for (int64_t k = 0; k < batch * out; k++) result[k] = result[k] > 0.0f ? result[k] : 0.0f;
        weights += (in + 1) * out;
        gradient += (in + 1) * out;
    }
    /* The output has one column; its bias follows it. */
    const int64_t last = width[layers];
    const float *hidden = inputs[layers];
    float *error = errors[layers - 1];
    memset(gradient, 0, (last + 1) * sizeof(float));
    for (int64_t b = 0; b < batch; b++) {
        float prediction = 0.0f;
#pragma omp simd reduction(+ : prediction)
        for (int64_t k = 0; k < last; k++) prediction += hidden[b * last + k] * weights[k];
        const float slope = shares[b] * loss_slope(prediction + weights[last], labels[b]);
        for (int64_t k = 0; k < last; k++) {
            gradient[k] += slope * hidden[b * last + k];
            error[b * last + k] = hidden[b * last + k] > 0.0f ? slope * weights[k] : 0.0f;
        }
        gradient[last] += slope;
    }
    for (int64_t i = layers - 1; i >= 0; i--) {
        const int64_t in = width[i], out = width[i + 1];
        float *bias = slopes[i] + in * out;
        multiply(sgemm, 'T', 'N', in, out, batch, inputs[i], in, errors[i], out, 0.0f, slopes[i],
                 out);
        memset(bias, 0, out * sizeof(float));
        for (int64_t b = 0; b < batch; b++)
            for (int64_t k = 0; k < out; k++) bias[k] += errors[i][b * out + k];
        if (i == 0) break;
        multiply(sgemm, 'N', 'T', batch, in, out, errors[i], out, matrices[i], out, 0.0f,
                 errors[i - 1], in);
        for (int64_t k = 0; k < batch * in; k++)
            errors[i - 1][k] = inputs[i][k] > 0.0f ? errors[i - 1][k] : 0.0f;
    }
}
