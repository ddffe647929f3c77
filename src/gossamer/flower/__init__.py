"""Flower apps without their server: clients in a process of their own, whose whole updates are protected."""
