"""sleep.py SECONDS: the command sleep, for Windows, which has none."""
import sys
import time

if __name__ == "__main__":
    time.sleep(float(sys.argv[1]))
