/* tests/fuzz_safetensors.c - libFuzzer target: any bytes as a safetensors file (make fuzz). */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include "traces/safetensors.h"
#include "traces/text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char err[256];
    struct trace_tensors tensors;
    if (trace_tensors_parse("fuzz", data, bytes, &tensors, err, sizeof err) != 0) return 0;
    for (size_t i = 0; i < tensors.count; i++) {
        const struct trace_tensor *tensor = &tensors.tensors[i];
        assert(trace_tensors_find(&tensors, tensor->name) == tensor);
        (void)trace_digest(0, tensor->data, (size_t)tensor->bytes); /* Reads every byte. */
    }
    (void)trace_tensors_metadata(&tensors, "case");
    trace_tensors_close(&tensors);
    return 0;
}
