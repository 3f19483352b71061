#pragma omp simd
    for (int64_t i = begin; i < end; i++) {
        const float gradient = gradients[i - begin], previous = result[i];
        const float weight = $read[i], anchor = anchors[i];
        $weights
        result[i] = $result;
    }
