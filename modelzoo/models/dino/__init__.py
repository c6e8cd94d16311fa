"""DINOv2: a student of images and the teacher that averages it."""
