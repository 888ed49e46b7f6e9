/* test_main.c - main() of the test programs that prepare nothing. Another one has its own, which calls test_run(). */
#include "support.h"

int main(void)
{
    return test_run(NULL, NULL);
}
