"""Golden bytes, written and read by the CUDA twin: the tests of the other implementations, which take theirs from this process."""

from tests.kernels.test_factors import test_golden_bits
from tests.kernels.test_golden import kernels, test_codes_of_whole_gradients, test_index_codes, test_value_codes
from tests.message.test_golden import test_golden_message, test_golden_message_of_the_codes_that_came_later

__all__ = [
    "kernels",
    "test_codes_of_whole_gradients",
    "test_golden_bits",
    "test_golden_message",
    "test_golden_message_of_the_codes_that_came_later",
    "test_index_codes",
    "test_value_codes",
]
