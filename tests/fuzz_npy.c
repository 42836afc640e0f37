/* tests/fuzz_npy.c - libFuzzer target: any bytes as a .npy file (make fuzz). */
#include <stddef.h>
#include <stdint.h>
#include "traces/npy.h"
#include "traces/text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char err[256];
    struct trace_npy npy;
    if (trace_npy_parse("fuzz", data, bytes, &npy, err, sizeof err) == 0) {
        (void)trace_digest(0, npy.data, (size_t)npy.bytes); /* Reads every byte. */
        if (trace_dtype_is_integer(npy.dtype) && npy.count > 0)
            (void)trace_npy_integer(&npy, npy.count - 1);
        trace_npy_close(&npy);
    }
    return 0;
}
