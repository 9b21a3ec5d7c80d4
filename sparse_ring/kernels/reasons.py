"""What each check of a decoder says when it fails; the codes are those of ``native/kernels.h``."""

from __future__ import annotations

HEADER = "the payload is shorter than its fixed part and directory"
MODULUS = "the Golomb parameter is 0"
DIRECTORY = "the directory of blocks contradicts the blocks"
TRUNCATED = "the payload ends inside an element"
TRAILING = "bytes are left after the last element"
PADDING = "an unused bit is set"
INDEX = "an index is not below the number of elements"
WIDTH = "a width is above what the code allows"
NOT_FINITE = "a value or scale is NaN or infinite"
ORDER = "indices are not strictly increasing"
COUNT = "another number of indices than the frame says"
LEVELS = "the levels of the values are negative or not finite"
DIGITS = "a byte holds no digits of values"
TABLE = "the number of the table of levels is unknown"
LENGTH = "the payload's length does not fit the number of values"

BAD_INDICES = -1
CAPACITY = -2

BY_CODE = {
    -3: HEADER,
    -4: MODULUS,
    -5: DIRECTORY,
    -6: TRUNCATED,
    -7: TRAILING,
    -8: PADDING,
    -9: INDEX,
    -10: WIDTH,
    -11: NOT_FINITE,
    -12: ORDER,
    -13: COUNT,
    -14: LEVELS,
    -15: DIGITS,
    -16: TABLE,
}
