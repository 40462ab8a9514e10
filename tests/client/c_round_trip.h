/* A round trip through the C API, in C11. */
#pragma once

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Saves `count_blocks` blocks (at most 8) over a tier in `folder`, finds them and loads them. 0, or
 * the line of the check that failed; `text` then has kvstream_last_error(). */
int c_round_trip(const char* folder, unsigned count_blocks, char* text, size_t text_bytes);

#ifdef __cplusplus
}
#endif
