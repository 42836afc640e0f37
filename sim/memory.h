/* sim/memory.h - is there room for what is about to be taken? Asked before, because Linux hands out
 * memory that it does not have and kills whoever touches it. */
#ifndef SIM_MEMORY_H
#define SIM_MEMORY_H

#include <stddef.h>
#include <stdint.h>

/* Bytes that may still be taken: what the kernel says is available, or what this process's control
 * group (version 2) still allows, whichever is less. UINT64_MAX where neither is known. */
uint64_t sim_memory_free_bytes(void);

/* 0 when need_bytes fit into free_bytes; else -1 and "WHAT: N bytes needed, M free: K short". */
int sim_memory_check(const char *what, uint64_t need_bytes, uint64_t free_bytes, char *err,
                     size_t err_len);

#endif
