"""Before Keras is imported anywhere: one backend, and TensorFlow without its greetings."""

import os

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
